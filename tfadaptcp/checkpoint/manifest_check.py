"""Checks of a manifest: types, names, and that its objects add up to one state.

A manifest is untrusted: it may have been damaged, cut off, edited, or written by a newer version.
"""

import dataclasses
import json
import re
from typing import Any, Dict, List, Tuple

from tfadaptcp.checkpoint import layout
from tfadaptcp.checkpoint.manifest import (END, FORMAT, KINDS, ROW_KINDS, DenseSpec, GroupSpec, Manifest, ObjectRef,
                                           TableSpec, split_checksum, sum_rows)
from tfadaptcp.errors import CheckpointCorruptError

_CREATED = re.compile(r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")
_CONSISTENCIES = ("step", "row")
_MOST = 1e18  # of anything measured


class _Broken(Exception):
    """A rule is broken; the text says which."""


def parse(data: bytes, file: str) -> Manifest:
    """See `Manifest.from_json`."""
    try:
        if not data.endswith(END):
            raise _Broken(f"it is cut off after {len(data)} bytes")
        body, found, expected = split_checksum(data)
        if found != expected:
            raise _Broken(f"its checksum is wrong. Received: {_show(found.decode('ascii', 'replace'))}. "
                          f"Expected: {expected.decode()!r}")
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _Broken(f"it is no JSON: {error}") from None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            received = value.get("format") if isinstance(value, dict) else value
            raise _Broken(f"its format is unknown. Received: {_show(received)}. Expected: {FORMAT}")
        manifest = _build(Manifest, value, "manifest", {"groups": _groups, "dense": _dense, "objects": _objects})
        _check(manifest)
        return manifest
    except _Broken as error:
        raise CheckpointCorruptError(f"{file}: the manifest is damaged: {error}") from None


def is_torn(data: bytes) -> bool:
    """Whether a manifest's text was never written to its end, so that its commit never returned."""
    return not data.endswith(END)


def check(manifest: Manifest) -> None:
    """Raises ValueError if the manifest breaks a rule that a reader would refuse it for."""
    try:
        # Through JSON and back, so that types are checked as a reader will see them.
        plain = json.loads(json.dumps(dataclasses.asdict(manifest), allow_nan=False))
        _check(_build(Manifest, plain, "manifest", {"groups": _groups, "dense": _dense, "objects": _objects}))
    except (_Broken, TypeError) as error:
        raise ValueError(f"manifest {manifest.name}: {error}") from None


def check_successor(parent: Manifest, child: Manifest) -> None:
    """Raises ValueError unless the child's chain is its parent's, plus its own increment, minus what a new base holds.

    This is what finds a gap: one manifest alone can't show that a whole increment is missing from it.
    """
    if child.base_sequence < parent.base_sequence:
        raise ValueError(f"manifest {child.name}: its base is older than its parent's. Received: base_sequence "
                         f"{child.base_sequence}. Expected: at least {parent.base_sequence}, that of {parent.name}")

    def inherited(manifest: Manifest):
        return {ref.path: ref for ref in manifest.objects
                if ref.kind == "increment" and child.base_sequence < ref.sequence < child.sequence
                or ref.kind == "base" and child.base_sequence == parent.base_sequence}

    before, after = inherited(parent), inherited(child)
    missing = [path for path, ref in before.items() if after.get(path) != ref]
    foreign = [path for path, ref in after.items() if before.get(path) != ref]
    if missing or foreign:
        raise ValueError(f"manifest {child.name} does not continue its parent {parent.name}: "
                         f"objects missing or changed: {missing}; objects that the parent lacks: {foreign}")


def _check(m: Manifest) -> None:
    try:
        layout.head_name(m.generation, m.sequence, m.run)
    except ValueError as error:
        raise _Broken(str(error)) from None
    _require(m.sequence >= 1, "sequence", m.sequence, "at least 1")
    ceiling = m.sequence  # the newest cut that an object of the head itself can belong to
    for field in ("parent", "origin"):
        text = getattr(m, field)
        if text is None:
            continue
        name = layout.parse_head(text)
        _require(name is not None, field, text, "the name of a checkpoint")
        _require(name.sequence < m.sequence and name.claim <= m.head.claim, field, text, f"older than {m.name}")
        if field == "origin":
            ceiling = name.sequence
    _require(_CREATED.fullmatch(m.created), "created", m.created, "ISO 8601 in UTC")
    _require(m.consistency in _CONSISTENCIES, "consistency", m.consistency, f"one of {_CONSISTENCIES}")
    for field in ("step", "epoch", "batch", "base_sequence"):
        _require(getattr(m, field) >= 0, field, getattr(m, field), "at least 0")
    _require(m.base_sequence <= ceiling, "base_sequence", m.base_sequence, f"at most {ceiling}")
    _check_specs(m)
    _check_objects(m, ceiling)
    _check_values(m)


def _check_specs(m: Manifest) -> None:
    _unique([group.name for group in m.groups], "group")
    _unique([table.name for group in m.groups for table in group.tables], "table")
    _unique([spec.name for spec in m.dense], "dense variable")
    for group in m.groups:
        _require(group.num_shards >= 1, f"num_shards of group {group.name}", group.num_shards, "at least 1")
        _require(group.tables, f"tables of group {group.name}", "none", "at least one")
        _require(len(group.placement) in (0, group.num_shards) and all(ps >= 0 for ps in group.placement),
                 f"placement of group {group.name}", group.placement, f"a ps for each of {group.num_shards} shards")
        for table in group.tables:
            _require(table.dim >= 1, f"dim of table {table.name}", table.dim, "at least 1")
    tables = {table.name for group in m.groups for table in group.tables}
    _require(set(m.table_rows) <= tables, "tables of table_rows", sorted(m.table_rows), f"among {sorted(tables)}")
    _require(all(rows >= 0 for rows in m.table_rows.values()), "table_rows", m.table_rows, "none negative")
    for spec in m.dense:
        _require(all(size >= 0 for size in spec.shape), f"shape of {spec.name}", spec.shape, "no negative size")


def _check_objects(m: Manifest, ceiling: int) -> None:
    _unique([ref.path for ref in m.objects], "object")
    groups = {group.name for group in m.groups}
    newest = 0  # increments so far
    of_head = set()  # sequences of differentials and dense objects
    for ref in m.objects:
        where = f"object {ref.path}"
        try:
            name = layout.parse_object(ref.path)
        except ValueError as error:
            raise _Broken(str(error)) from None
        _require(ref.kind in KINDS, f"kind of {where}", ref.kind, f"one of {KINDS}")
        _require(ref.ps >= 0, f"ps of {where}", ref.ps, "at least 0")
        _require(ref.bytes >= 0, f"bytes of {where}", ref.bytes, "at least 0")
        _require(0 <= ref.crc32c < 1 << 32, f"crc32c of {where}", ref.crc32c, "32 bits, unsigned")
        _require(set(ref.rows) <= groups, f"groups of {where}", sorted(ref.rows), f"among {sorted(groups)}")
        _require(all(rows >= 0 for rows in ref.rows.values()), f"rows of {where}", ref.rows, "none negative")
        _require(ref.kind != "dense" or not ref.rows, f"rows of {where}", ref.rows, "none in a dense object")
        _require(name.head.claim <= m.head.claim, where, name.head, f"written by {m.head.claim} or before")
        if ref.kind == "base":
            # A fuzzy base starts at a cut and is written while later checkpoints go on.
            _require(ref.sequence == m.base_sequence > 0, f"sequence of {where}", ref.sequence,
                     f"that of the base, {m.base_sequence}")
            in_dir = m.base_sequence <= name.head.sequence <= ceiling
        else:
            in_dir = name.head.sequence == ref.sequence
        _require(in_dir, f"directory of {where}", name.head.sequence, f"the cut {ref.sequence}")
        if ref.kind == "increment":
            _require(m.base_sequence < ref.sequence <= ceiling, f"sequence of {where}", ref.sequence,
                     f"above the base {m.base_sequence} and at most {ceiling}")
            _require(newest <= ref.sequence, f"sequence of {where}", ref.sequence, f"in order, at least {newest}")
            newest = ref.sequence
        elif ref.kind != "base":
            of_head.add(ref.sequence)
    _require(of_head <= {ceiling}, "sequences of differential and dense objects", sorted(of_head),
             f"that of the head, {ceiling}")
    sums = _without_zeros(sum_rows(m.objects))
    _require(set(m.rows) <= set(ROW_KINDS), "kinds of rows", sorted(m.rows), f"among {ROW_KINDS}")
    _require(_without_zeros(m.rows) == sums, "rows", m.rows, f"the sums over the objects, {sums}")


def _check_values(m: Manifest) -> None:
    """What readers take out of the free-form fields; further members are for those who know them."""
    for name, kind in (("name", str), ("estimator", str), ("threshold", (int, float)), ("decay", (int, float))):
        value = m.policy.get(name, kind() if kind is str else 0)
        _require(isinstance(value, kind) and not isinstance(value, bool), f"policy.{name}", value, "a plain value")
    _require(_is_quantization(m.policy.get("quantization")), "policy.quantization", m.policy.get("quantization"),
             "null, or method, bits and those of slots")
    _require(0 <= m.policy.get("decay", 0) < 1, "policy.decay", m.policy.get("decay"), "from 0 to below 1")
    _require(all(type(value) in (int, float) for value in m.scalars.values()), "scalars", m.scalars, "numbers")
    entry = m.stats.get("chain", {})
    _require(isinstance(entry, dict), "stats.chain", entry, "an object")
    _require(all(value is None or type(value) in (bool, int, float) and value >= 0 for value in entry.values()),
             "stats.chain", entry, "numbers, none negative")
    measured = m.stats.get("measured", {})
    _require(isinstance(measured, dict), "stats.measured", measured, "an object")
    sizes = measured.get("bytes_per_row", {})
    _require(isinstance(sizes, dict), "stats.measured.bytes_per_row", sizes, "an object")
    for value in [*sizes.values(), *(value for name, value in measured.items() if name != "bytes_per_row")]:
        _require(type(value) in (int, float) and 0 <= value <= _MOST, "stats.measured", measured,
                 f"numbers from 0 to {_MOST:g}")


def _is_quantization(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and isinstance(value.get("method"), str)
                             and type(value.get("bits")) is int and _is_quantization(value.get("slots"))
                             and (value.get("slots") or {}).get("slots") is None)


def _without_zeros(rows: Dict[str, Dict[str, int]]) -> Dict[str, Dict[str, int]]:
    kept = {kind: {group: n for group, n in groups.items() if n} for kind, groups in rows.items()}
    return {kind: groups for kind, groups in kept.items() if groups}


def _build(cls, value: Any, where: str, nested: Dict[str, Any]):
    """Builds a dataclass from a JSON object, checking names and types of the fields by the annotations."""
    _require(isinstance(value, dict), where, value, "an object")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    _require(set(value) == set(fields), f"fields of {where}", sorted(value), sorted(fields))
    made = {}
    for name, field in fields.items():
        made[name] = nested[name](value[name]) if name in nested else _typed(value[name], field.type, f"{where}.{name}")
    return cls(**made)


def _typed(value: Any, annotation: Any, where: str) -> Any:
    text = str(annotation).replace("typing.", "")
    if annotation is int:
        # JSON numbers have no bound; ours are all lengths, counts and steps.
        _require(type(value) is int and -1 << 63 <= value < 1 << 63, where, value, "a 64-bit integer")
    elif annotation is str:
        _require(isinstance(value, str), where, value, "a string")
    elif text == "Optional[str]":
        _require(value is None or isinstance(value, str), where, value, "a string or null")
    elif text == "Tuple[int, ...]":
        _require(isinstance(value, list), where, value, "a list")
        return tuple(_typed(item, int, where) for item in value)
    elif text.startswith("Dict["):
        _require(isinstance(value, dict), where, value, "an object")
        inner = {"Dict[str, int]": int, "Dict[str, str]": str, "Dict[str, Dict[str, int]]": Dict[str, int]}.get(text)
        if inner is not None:
            return {key: _typed(item, inner, f"{where}[{key!r}]") for key, item in value.items()}
    else:
        raise AssertionError(f"no check for {where}: {text}")
    return value


def _list(value: Any, where: str) -> List[Any]:
    _require(isinstance(value, list), where, value, "a list")
    return value


def _groups(value: Any) -> Tuple[GroupSpec, ...]:
    return tuple(_build(GroupSpec, item, "group", {"tables": _tables}) for item in _list(value, "groups"))


def _tables(value: Any) -> Tuple[TableSpec, ...]:
    return tuple(_build(TableSpec, item, "table", {}) for item in _list(value, "tables"))


def _dense(value: Any) -> Tuple[DenseSpec, ...]:
    return tuple(_build(DenseSpec, item, "dense", {}) for item in _list(value, "dense"))


def _objects(value: Any) -> Tuple[ObjectRef, ...]:
    return tuple(_build(ObjectRef, item, "object", {}) for item in _list(value, "objects"))


def _unique(names: List[str], what: str) -> None:
    seen = set()
    for name in names:
        _require(name not in seen, f"{what} {name!r}", "listed twice", "once")
        seen.add(name)


def _require(holds: Any, what: str, received: Any, expected: Any) -> None:
    if not holds:
        raise _Broken(f"{what} is wrong. Received: {_show(received)}. Expected: {expected}")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
