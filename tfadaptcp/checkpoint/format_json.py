"""Parses the JSON records of a segment: header and footer."""

import json

from tfadaptcp.checkpoint.format_types import (
    DTYPES, FORMAT_VERSION, KEY_DTYPES, KINDS, U32_MAX, U64_MAX, DenseBlock, Malformed, RowBlock, SegmentGroup,
    SegmentHeader, SegmentTable)


def _refuse_constant(text: str):
    raise ValueError(f"{text} is not JSON")


def _parse_json(record: memoryview, kind: bytes, what: str) -> dict:
    if record[:1].tobytes() != kind:
        raise Malformed(f"not a {what} record")
    try:
        value = json.loads(record[1:].tobytes().decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Malformed(f"{what}: not a JSON object")
    return value


def _member(value: object, key: str, where: str, kind: type, low: int = 0, high: int = U64_MAX):
    member = value.get(key) if isinstance(value, dict) else None
    good = isinstance(member, kind) and not isinstance(member, bool)
    if good and (kind is not int or low <= member <= high):
        return member
    expected = f"an integer from {low} to {high}" if kind is int else f"a {kind.__name__}"
    raise Malformed(f'{where}: bad "{key}". Received: {str(member)[:80]}. Expected: {expected}')


def _dtype_member(value: object, key: str, where: str) -> str:
    dtype = _member(value, key, where, str)
    if dtype not in DTYPES.values():
        raise Malformed(f"{where}: unknown dtype. Received: {dtype!r}. Expected one of: {', '.join(DTYPES.values())}")
    return dtype


def parse_header(record: memoryview) -> SegmentHeader:
    """The header; raises Malformed."""
    value = _parse_json(record, b"H", "header")
    version = _member(value, "format", "header", int, 1, U32_MAX)
    if version != FORMAT_VERSION:
        raise Malformed(f"unknown format version. Received: {version}. Expected: {FORMAT_VERSION}; "
                   "was this file written by a later version?")
    groups = []
    for i, entry in enumerate(_member(value, "groups", "header", list)):
        groups.append(_parse_group(entry, f"header, group {i}"))
    if len({(group.name, group.shard) for group in groups}) != len(groups):
        raise Malformed("header: a shard of a group is there twice")
    header = SegmentHeader(
        run=_member(value, "run", "header", str), generation=_member(value, "generation", "header", int),
        sequence=_member(value, "sequence", "header", int, 1, U32_MAX), kind=_member(value, "kind", "header", str),
        ps=_member(value, "ps", "header", int, -1, 2**31 - 1), groups=tuple(groups))
    if header.kind not in KINDS or not header.run:
        raise Malformed(f"header: bad kind or run. Received: {header.kind!r}, {header.run!r}. "
                   f"Expected a kind of: {', '.join(KINDS)}")
    return header


def _parse_group(entry: object, where: str) -> SegmentGroup:
    tables = []
    for i, table in enumerate(_member(entry, "tables", where, list)):
        at = f"{where}, table {i}"
        tables.append(SegmentTable(_member(table, "name", at, str), _dtype_member(table, "dtype", at),
                                   _member(table, "dim", at, int, 1, U32_MAX)))
    names = {table.name for table in tables}
    if not tables or len(tables) > 65535 or len(names) != len(tables) or "" in names:
        raise Malformed(f"{where}: there must be 1 to 65535 tables, whose names differ")
    group = SegmentGroup(_member(entry, "name", where, str), _dtype_member(entry, "key_dtype", where),
                         _member(entry, "shard", where, int, 0, U32_MAX),
                         _member(entry, "num_shards", where, int, 1, U32_MAX), tuple(tables))
    if not group.name or group.key_dtype not in KEY_DTYPES or group.shard >= group.num_shards:
        raise Malformed(f"{where}: bad name, key type or shard. Received: {group.name!r}, {group.key_dtype}, "
                   f"shard {group.shard} of {group.num_shards}")
    return group


def parse_footer(record: memoryview, header: SegmentHeader, row_blocks: list[RowBlock],
                  dense_blocks: list[DenseBlock]) -> dict:
    """The footer's JSON, after comparing it with the blocks; raises Malformed."""
    footer = _parse_json(record, b"F", "footer")
    counts = [{"name": group.name, "rows": 0, "tombstones": 0, "blocks": 0} for group in header.groups]
    for block in row_blocks:
        count = counts[block.group]
        count["rows"] += len(block.keys)
        count["tombstones"] += int(block.tombstones.sum())
        count["blocks"] += 1
    dense: dict[str, dict] = {}
    for block in dense_blocks:
        count = dense.setdefault(block.name, {"name": block.name, "blocks": 0, "elements": 0})
        count["blocks"] += 1
        count["elements"] += block.values.size
    for key, expected in (("groups", counts), ("dense", list(dense.values()))):
        members = ("name", *list(expected[0])[1:]) if expected else ()
        received = [{m: _member(entry, m, "footer", str if m == "name" else int) for m in members}
                    for entry in _member(footer, key, "footer", list)]
        if received != expected:
            raise Malformed(f'the footer does not say what the file holds. Received: "{key}": {received}. '
                       f"Expected: {expected}")
    return footer
