"""What of a checkpoint goes where in a model: decided, and every difference found, before anything is changed.

Tables, groups and dense variables share one space of names. A group has the name of its embedding variable, which is
also that of its first table; its other tables are `<variable>/<slot>`.
"""

import dataclasses
import difflib
import fnmatch
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from tfadaptcp.checkpoint.manifest import GroupSpec, Manifest
from tfadaptcp.embeddings import dense
from tfadaptcp.engine import Engine
from tfadaptcp.errors import CheckpointMismatchError

# Types of values between which `cast` converts.
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Selection:
    """What the caller of a restore asked for; see `load_adaptcp` for the fields."""
    tables: Optional[Tuple[str, ...]] = None
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optimizer: bool = True
    cast: bool = False

    @staticmethod
    def of(tables: Union[None, str, Iterable[str]], rename: Optional[Mapping[str, str]], optimizer: bool, cast: bool,
           strict: bool) -> "Selection":
        """Checks the arguments of a restore. Raises ValueError."""
        if tables is not None:
            tables = tuple(tables) if isinstance(tables, Iterable) and not isinstance(tables, str) else (tables,)
            if not tables or not all(isinstance(name, str) for name in tables):
                raise ValueError(f"tables: Received: {tables!r}. Expected: None, or at least one name")
        if rename is not None and not (isinstance(rename, Mapping) and all(
                isinstance(name, str) for pair in rename.items() for name in pair)):
            raise ValueError(f"rename: Received: {rename!r}. Expected: {{name in the checkpoint: name in the model}}")
        for name, value in (("optimizer", optimizer), ("cast", cast), ("strict", strict)):
            if not isinstance(value, bool):
                raise ValueError(f"{name}: Received: {value!r}. Expected: True or False")
        return Selection(tables, dict(rename or {}), optimizer, cast)

    def matches(self, *names: str) -> bool:
        """Whether something that goes by any of these names is asked for."""
        return self.tables is None or any(_is(name, pattern) for pattern in self.tables for name in names)


@dataclasses.dataclass(frozen=True)
class GroupPlan:
    """A group of the model, that of the checkpoint it comes from, and per table of `ours` the place of its table in
    `theirs`; None: that table stays as it is."""
    ours: GroupSpec
    theirs: GroupSpec
    take: Tuple[Optional[int], ...]

    @property
    def casts(self) -> bool:
        """Whether values change their type."""
        return any(i is not None and self.theirs.tables[i].dtype != table.dtype
                   for i, table in zip(self.take, self.ours.tables))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to restore.

    Attributes:
        groups: those of which at least one table is restored.
        dense: {variable of the model: its name in the checkpoint}.
        scalars: whether the optimizer's settings are restored.
        continues: whether the model is the head afterwards, so that its next checkpoint goes on from it.
        missing: asked for, and not in the checkpoint.
        unexpected: in the checkpoint, and not in the model.
    """
    groups: Tuple[GroupPlan, ...]
    dense: Dict[str, str]
    scalars: bool
    continues: bool
    missing: List[str]
    unexpected: List[str]

    def rows(self, head: Manifest) -> Dict[str, int]:
        """{table of the model: rows it had at the cut}, for the tables that are restored."""
        return {table.name: head.table_rows[plan.theirs.tables[i].name] for plan in self.groups
                for i, table in zip(plan.take, plan.ours.tables)
                if i is not None and plan.theirs.tables[i].name in head.table_rows}


def match(engine: Engine, head: Manifest, selection: Selection, strict: bool) -> Plan:
    """Finds what of a head goes where in the model of an engine.

    Raises:
        CheckpointMismatchError: names, dtypes or dimensions differ, all differences at once.
    """
    ours = {group.name: group for group in engine.group_specs()}
    dense_ours = {spec.name: spec for spec in engine.dense_specs()}
    dense_theirs = {spec.name: spec for spec in head.dense}
    names = set(ours) | {table.name for group in ours.values() for table in group.tables} | set(dense_ours)
    theirs_names = (set(dense_theirs) | {group.name for group in head.groups}
                    | {table.name for group in head.groups for table in group.tables})
    problems = _unknown(selection, names, theirs_names)
    if problems:
        raise _mismatch(head, problems)

    targets, dense_targets = _targets(head, selection.rename, problems)
    of_optimizer = engine.dense_of_optimizer
    of_weights = {table.name for group in engine.groups for table in group.tables if not table.is_slot}
    plans, missing = [], []
    for group in ours.values():
        theirs, columns = targets.get(group.name, (None, {}))
        # Rows that a restrict policy knows nothing of would never go.
        wanted = [selection.matches(group.name, table.name) and (
                      selection.optimizer or i == 0 or table.name in of_weights and table.name in columns)
                  for i, table in enumerate(group.tables)]
        take = tuple(columns.get(table.name) if want else None for want, table in zip(wanted, group.tables))
        missing += [table.name for want, i, table in zip(wanted, take, group.tables) if want and i is None]
        if any(i is not None for i in take):
            plans.append(GroupPlan(group, theirs, take))
            problems += _differences(plans[-1], selection.cast)
    variables = {}
    for name, spec in dense_ours.items():
        if not selection.matches(name) or not (selection.optimizer or name not in of_optimizer):
            continue
        if name not in dense_targets:
            missing.append(name)
            continue
        other = dense_theirs[dense_targets[name]]
        variables[name] = other.name
        if other.shape != spec.shape or not _fits(other.dtype, spec.dtype, selection.cast):
            problems.append(f"dense variable {name}: Received: {_show(other)} in the checkpoint. Expected: "
                            f"{_show(spec)}{_hint(other.dtype, spec.dtype)}")
    missing.sort()
    unexpected = _unexpected(engine, head, selection, ours, targets, dense_ours, dense_targets)
    if strict and (missing or unexpected):
        problems.append(f"missing in the checkpoint: {_with_nearest(missing, unexpected)}; "
                        f"unexpected in it: {_with_nearest(unexpected, missing)}")
    if problems:
        raise _mismatch(head, problems)
    everything = selection.tables is None and selection.optimizer
    restored = sum(i is not None for plan in plans for i in plan.take)
    continues = (everything and not selection.rename and not any(plan.casts for plan in plans)
                 and restored == sum(len(group.tables) for group in ours.values()))
    return Plan(tuple(plans), variables, everything, continues, missing, unexpected)


def _is(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _mismatch(head: Manifest, problems: Sequence[str]) -> CheckpointMismatchError:
    return CheckpointMismatchError(f"checkpoint {head.name} does not fit the model: {'. '.join(problems)}")


def _unknown(selection: Selection, ours: Set[str], theirs: Set[str]) -> List[str]:
    """Names in the arguments that nothing has."""
    found = []
    for pattern in selection.tables or ():
        if not any(_is(name, pattern) for name in ours):
            found.append(_not_there("tables", pattern, "the model", ours))
    for source, target in selection.rename.items():
        if source not in theirs:
            found.append(_not_there("rename", source, "the checkpoint", theirs))
        if target not in ours:
            found.append(_not_there("rename", target, "the model", ours))
    targets = list(selection.rename.values())
    found += [f"rename: Received: {target!r} for several names. Expected: each name of the model at most once"
              for target in sorted(set(targets)) if targets.count(target) > 1]
    return found


def _not_there(argument: str, name: str, where: str, names: Set[str]) -> str:
    nearest = difflib.get_close_matches(name, names, n=3) or sorted(names)[:20]
    return f"{argument}: Received: {name!r}. Expected: a name in {where}, the nearest are {nearest}"


def _targets(head: Manifest, rename: Mapping[str, str], problems: List[str]
             ) -> Tuple[Dict[str, Tuple[GroupSpec, Dict[str, int]]], Dict[str, str]]:
    """By their names in the model: groups, with the places of their tables by name, and the names of dense variables."""
    taken = set(rename.values())
    groups: Dict[str, Tuple[GroupSpec, Dict[str, int]]] = {}
    for group in head.groups:
        name = rename.get(group.name, group.name)
        if name in taken and group.name not in rename:
            continue  # another one has come to have its name
        columns = {}
        for i, table in enumerate(group.tables):
            as_slot = name + table.name[len(group.name):] if table.name.startswith(group.name) else table.name
            target = as_slot if i == 0 else rename.get(table.name, as_slot)
            if i > 0 and not target.startswith(name + "/"):
                problems.append(f"rename: Received: {target!r} for table {table.name}. Expected: a table of {name}, as "
                                f"the rest of its group")
            if target not in taken or table.name in rename or i == 0:
                columns[target] = i
        groups[name] = group, columns
    variables = {}
    for spec in head.dense:
        name = rename.get(spec.name, spec.name)
        if name not in taken or spec.name in rename:
            variables[name] = spec.name
    return groups, variables


def _unexpected(engine: Engine, head: Manifest, selection: Selection, ours: Dict[str, GroupSpec],
                targets: Dict[str, Tuple[GroupSpec, Dict[str, int]]], dense_ours: Dict[str, Any],
                dense_targets: Dict[str, str]) -> List[str]:
    """What the checkpoint has and the model has no use for, by its names in the checkpoint."""
    if selection.tables is not None:
        return []  # the rest was not asked for
    used = {dense_targets[name] for name in dense_ours if name in dense_targets}
    weights_only = engine.optimizer is None or not selection.optimizer
    if weights_only:
        used |= {spec.name for spec in head.dense}
    for name, (theirs, columns) in targets.items():
        if name not in ours:
            continue
        tables = {table.name for table in ours[name].tables}
        used |= {theirs.tables[i].name for target, i in columns.items() if target in tables}
        if weights_only:
            used |= {table.name for table in theirs.tables[1:]}  # slots
    everything = {table.name for group in head.groups for table in group.tables} | {spec.name for spec in head.dense}
    return sorted(everything - used)


def _differences(plan: GroupPlan, cast: bool) -> List[str]:
    ours, theirs = plan.ours, plan.theirs
    found = []
    if ours.key_dtype != theirs.key_dtype:
        found.append(f"table {ours.name}: Received: keys of {theirs.key_dtype} in the checkpoint. "
                     f"Expected: {ours.key_dtype}")
    for i, table in zip(plan.take, ours.tables):
        if i is None:
            continue
        other = theirs.tables[i]
        if other.dim != table.dim or not _fits(other.dtype, table.dtype, cast):
            found.append(f"table {table.name}: Received: {other.dtype} of dim {other.dim} in the checkpoint. "
                         f"Expected: {table.dtype} of dim {table.dim}{_hint(other.dtype, table.dtype)}")
    return found


def _fits(theirs: str, ours: str, cast: bool) -> bool:
    return theirs == ours or cast and theirs in _FLOATS and ours in _FLOATS


def _hint(theirs: str, ours: str) -> str:
    return ", or cast=True" if theirs != ours and theirs in _FLOATS and ours in _FLOATS else ""


def _show(spec: Any) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _with_nearest(names: List[str], others: List[str]) -> str:
    shown = []
    for name in names:
        nearest = difflib.get_close_matches(name, others, n=1)
        shown.append(f"{name} (nearest: {nearest[0]})" if nearest else name)
    return "[" + ", ".join(shown) + "]"
