"""Checks of a manifest: types, names, and that its objects add up to one state.

A manifest is untrusted: it may have been damaged, cut off, edited, or written by a newer version.
"""

import dataclasses
import functools
import json
import re
from typing import Any, Dict, List, Tuple

from tfadaptcp.checkpoint import layout
from tfadaptcp.checkpoint.format_types import KINDS
from tfadaptcp.checkpoint.manifest import (CONSISTENCIES, END, FORMAT, ROW_KINDS, DenseSpec, GroupSpec, Manifest,
                                           ObjectRef, TableSpec, split_checksum, sum_rows)
from tfadaptcp.errors import CheckpointCorruptError

_CREATED = re.compile(r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")
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
        manifest = _from_plain(value)
        _check(manifest)
        return manifest
    except _Broken as error:
        raise CheckpointCorruptError(f"{file}: the manifest is damaged: {error}") from None


def is_torn(data: bytes) -> bool:
    """Whether a manifest's text was never written to its end, so that its commit never returned."""
    return not data.endswith(END)


def check(name: str, body: bytes) -> None:
    """Raises ValueError if the manifest `name`, as JSON, breaks a rule that a reader would refuse it for."""
    try:
        _check(_from_plain(json.loads(body)))
    except _Broken as error:
        raise ValueError(f"manifest {name}: {error}") from None


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
    _require(m.consistency in CONSISTENCIES, "consistency", m.consistency, f"one of {CONSISTENCIES}")
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
    groups, claim = {group.name for group in m.groups}, m.head.claim
    newest = 0  # increments so far
    of_head = set()  # sequences of differentials and dense objects
    for ref in m.objects:
        try:
            name = layout.parse_object(ref.path)
        except ValueError as error:
            raise _Broken(str(error)) from None
        _require_of(ref, ref.kind in KINDS, "kind of ", ref.kind, "one of {}", KINDS)
        _require_of(ref, ref.ps >= 0, "ps of ", ref.ps, "at least 0")
        _require_of(ref, ref.bytes >= 0, "bytes of ", ref.bytes, "at least 0")
        _require_of(ref, 0 <= ref.crc32c < 1 << 32, "crc32c of ", ref.crc32c, "32 bits, unsigned")
        _require_of(ref, ref.rows.keys() <= groups, "groups of ", ref.rows, "among {}", groups)
        _require_of(ref, min(ref.rows.values(), default=0) >= 0, "rows of ", ref.rows, "none negative")
        _require_of(ref, ref.kind != "dense" or not ref.rows, "rows of ", ref.rows, "none in a dense object")
        _require_of(ref, name.head.claim <= claim, "", name.head, "written by {} or before", claim)
        if ref.kind == "base":
            # A scanned base starts at a cut and is written while later checkpoints go on.
            _require_of(ref, ref.sequence == m.base_sequence > 0, "sequence of ", ref.sequence, "that of the base, {}",
                        m.base_sequence)
            in_dir = m.base_sequence <= name.head.sequence <= ceiling
        else:
            in_dir = name.head.sequence == ref.sequence
        _require_of(ref, in_dir, "directory of ", name.head.sequence, "the cut {}", ref.sequence)
        if ref.kind == "increment":
            _require_of(ref, m.base_sequence < ref.sequence <= ceiling, "sequence of ", ref.sequence,
                        "above the base {} and at most {}", m.base_sequence, ceiling)
            _require_of(ref, newest <= ref.sequence, "sequence of ", ref.sequence, "in order, at least {}", newest)
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
    _require(_is_quantization(m.stats.get("base_quantization")), "stats.base_quantization", m.stats.get("base_quantization"),
             "null, or method, bits and those of slots")
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


def _from_plain(value: Any) -> Manifest:
    return _build(Manifest, value, "manifest", {"groups": _groups, "dense": _dense, "objects": _objects})


def _build(cls, value: Any, where: str, nested: Dict[str, Any]):
    """Builds a dataclass from a JSON object, checking names and types of the fields by the annotations."""
    _require(isinstance(value, dict), where, value, "an object")
    fields = _annotations(cls)
    if value.keys() != fields.keys():
        _require(False, f"fields of {where}", sorted(value), sorted(fields))
    made = {}
    for name, annotation in fields.items():
        item = value[name]
        if name in nested:
            made[name] = nested[name](item)
        else:
            fits = _FITS.get(annotation)
            made[name] = item if fits is not None and fits(item) else _typed(item, annotation, f"{where}.{name}")
    return cls(**made)


@functools.lru_cache(maxsize=None)
def _annotations(cls) -> Dict[str, str]:
    """The types of a dataclass's fields, as text."""
    return {field.name: getattr(field.type, "__name__", "") if isinstance(field.type, type)
            else str(field.type).replace("typing.", "") for field in dataclasses.fields(cls)}


def _is_number(value: Any) -> bool:
    # JSON numbers have no bound; ours are all lengths, counts and steps.
    return type(value) is int and -1 << 63 <= value < 1 << 63


def _is_text(value: Any) -> bool:
    return type(value) is str


# What a chain of hundreds of objects has in each of them, asked without ado.
_FITS = {"int": _is_number, "str": _is_text,
         "Dict[str, int]": lambda value: type(value) is dict and all(map(_is_number, value.values()))}


def _typed(value: Any, annotation: str, where: str) -> Any:
    """A value of that type. Raises if it is none, naming the part that isn't."""
    if annotation == "int":
        _require(_is_number(value), where, value, "a 64-bit integer")
    elif annotation == "str":
        _require(_is_text(value), where, value, "a string")
    elif annotation == "Optional[str]":
        _require(value is None or _is_text(value), where, value, "a string or null")
    elif annotation == "Tuple[int, ...]":
        _require(isinstance(value, list), where, value, "a list")
        return tuple(_typed(item, "int", where) for item in value)
    elif annotation.startswith("Dict["):
        _require(isinstance(value, dict), where, value, "an object")
        inner = {"Dict[str, int]": "int", "Dict[str, str]": "str", "Dict[str, Dict[str, int]]": "Dict[str, int]"}
        if annotation in inner:
            return {key: _typed(item, inner[annotation], f"{where}[{key!r}]") for key, item in value.items()}
    else:
        raise AssertionError(f"no check for {where}: {annotation}")
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


def _require_of(ref: ObjectRef, holds: Any, what: str, received: Any, expected: str, *values: Any) -> None:
    """`_require` of an object, of which there are many: no text is made while all is well."""
    if not holds:
        _require(False, f"{what}object {ref.path}", received, expected.format(*values))


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
