"""The manifest: the one file that makes a checkpoint exist.

It lists every object of the state at the head: the base, the increments after the base, and the one differential and
the dense objects of the head itself. It carries its own checksum and holds relative paths only.
"""

import dataclasses
import datetime
import functools
import hashlib
import json
from typing import Any, Dict, Optional, Tuple

from tfadaptcp.checkpoint import layout
from tfadaptcp.checkpoint.format_types import KINDS
from tfadaptcp.checkpoint.layout import HeadName

FORMAT = 1
ROW_KINDS = KINDS[:3]
CONSISTENCIES = ("step", "row")

# A whole manifest ends with this; one that doesn't was never written to its end.
END = b'"}\n'


@dataclasses.dataclass(frozen=True)
class ObjectRef:
    """One segment. `rows` is {group: rows}, tombstones included; `sequence` is that of the cut it belongs to."""
    path: str
    kind: str
    sequence: int
    ps: int
    bytes: int
    crc32c: int
    rows: Dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """One table of a group: the embedding variable, one of its slots, or its restrict policy's status."""
    name: str
    dtype: str
    dim: int


@dataclasses.dataclass(frozen=True)
class GroupSpec:
    """An embedding variable with all tables of its keys.

    `partition` names the function that placed the rows; `placement` has, for each shard, the ps whose segments hold it.
    """
    name: str
    key_dtype: str
    num_shards: int
    partition: str
    tables: Tuple[TableSpec, ...] = ()
    placement: Tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class DenseSpec:
    """A dense variable; `shape` is the whole variable's, however it was partitioned."""
    name: str
    dtype: str
    shape: Tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint.

    Attributes:
        run, generation, sequence: who made it and when in that order; its name.
        parent: the name of the head this one continues, None for the first of a lineage.
        origin: set if this is a head re-published after a restore: the name under which it was first committed.
        created: UTC, ISO 8601. For people; nothing is decided by it.
        policy: the policy's name and what it decided ("threshold"), as plain JSON values; "quantization": that of the
            rows this head wrote, None if it wrote them as they are.
        step, epoch, batch: `optimizer.iterations` at the cut, epochs completed, batches completed in the current one.
        consistency: "step" or "row".
        base_sequence: the cut at which the base begins; 0 without a base. Increments after it are part of the state.
        groups, dense: what was saved, with the spec that a restore checks.
        objects: every object of the state; increments in the order of their sequences.
        rows: {kind: {group: rows}}, the sums over the objects.
        table_rows: {table: live rows} at the cut by TFRA's count, which may be slightly too high, over its shards.
        incarnations: {ps: incarnation}.
        scalars: Python state beside the dense variables (learning rate and the like), plain JSON values.
        stats: measurements, plain JSON values.
    """
    run: str
    generation: int
    sequence: int
    parent: Optional[str] = None
    origin: Optional[str] = None
    created: str = ""
    policy: Dict[str, Any] = dataclasses.field(default_factory=dict)
    step: int = 0
    epoch: int = 0
    batch: int = 0
    consistency: str = "step"
    base_sequence: int = 0
    groups: Tuple[GroupSpec, ...] = ()
    dense: Tuple[DenseSpec, ...] = ()
    objects: Tuple[ObjectRef, ...] = ()
    rows: Dict[str, Dict[str, int]] = dataclasses.field(default_factory=dict)
    table_rows: Dict[str, int] = dataclasses.field(default_factory=dict)
    incarnations: Dict[str, str] = dataclasses.field(default_factory=dict)
    scalars: Dict[str, Any] = dataclasses.field(default_factory=dict)
    stats: Dict[str, Any] = dataclasses.field(default_factory=dict)
    format: int = FORMAT

    @property
    def head(self) -> HeadName:
        return HeadName(self.generation, self.sequence, self.run)

    @property
    def name(self) -> str:
        """What `checkpoint=` takes."""
        return str(self.head)

    @property
    def identity(self) -> str:
        """The same for a head and all its re-publications: they count once."""
        return self.origin or self.name

    @functools.cached_property
    def sums(self) -> Dict[Tuple[str, int], Tuple[int, int]]:
        """{(kind, sequence): (objects, their bytes)}; counted once, as there may be hundreds of thousands of objects."""
        found: Dict[Tuple[str, int], Tuple[int, int]] = {}
        for ref in self.objects:
            objects, size = found.get((ref.kind, ref.sequence), (0, 0))
            found[ref.kind, ref.sequence] = objects + 1, size + ref.bytes
        return found

    def objects_of(self, *kinds: str) -> int:
        """Number of objects of these kinds."""
        return sum(objects for (kind, _), (objects, _) in self.sums.items() if kind in kinds)

    def bytes_of(self, *kinds: str) -> int:
        """Bytes of the objects of these kinds."""
        return sum(size for (kind, _), (_, size) in self.sums.items() if kind in kinds)

    @property
    def bytes(self) -> int:
        """Bytes that a restore of this head reads."""
        return sum(size for _, size in self.sums.values())

    def to_json(self) -> bytes:
        """Returns the canonical text: sorted keys, the checksum last, one newline at the end.

        Raises:
            ValueError: the manifest breaks a rule that `from_json` checks, so it could not be read back.
        """
        from tfadaptcp.checkpoint import manifest_check
        try:
            body = _dumps(self)
        except TypeError as error:
            raise ValueError(f"manifest {self.name}: {error}") from None
        # As JSON, so that types are checked as a reader will see them.
        manifest_check.check(self.name, body)
        return body[:-1] + b',"sha256":"' + _digest(body) + END

    @staticmethod
    def from_json(data: bytes, file: str) -> "Manifest":
        """Parses and checks everything. `file` is named in errors.

        Raises:
            CheckpointCorruptError: truncated, changed, of an unknown format, or inconsistent in itself.
        """
        from tfadaptcp.checkpoint import manifest_check
        return manifest_check.parse(data, file)


def utc_now() -> str:
    """Returns the present time for `Manifest.created`."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def sum_rows(objects) -> Dict[str, Dict[str, int]]:
    """Returns {kind: {group: rows}} over objects, for `Manifest.rows`; kinds and groups without an object are absent."""
    total: Dict[str, Dict[str, int]] = {}
    for ref in objects:
        if ref.kind not in ROW_KINDS:
            continue
        groups = total.setdefault(ref.kind, {})
        for group, rows in ref.rows.items():
            groups[group] = groups.get(group, 0) + rows
    return total


def republish(manifest: Manifest, claim: layout.ClaimName, sequence: int) -> Manifest:
    """Returns a restored head under the generation of the run that goes on from it.

    The state is the same, so it keeps the objects, and the parent of the original: whichever copy of it a directory
    has lost, the chain of ancestors holds. `origin` always names the original, not another copy.
    """
    return dataclasses.replace(manifest, run=claim.run, generation=claim.generation, sequence=sequence,
                               origin=manifest.identity, created=utc_now())


def split_checksum(data: bytes) -> Tuple[bytes, bytes, bytes]:
    """Splits a text that ends with END into body, the digest it carries and the digest it should carry."""
    mark = data.rfind(b',"sha256":"')
    if mark < 0:
        return b"", b"", b"?"
    body = data[:mark] + b"}"
    return body, data[mark + len(b',"sha256":"'):-len(END)], _digest(body)


def _dumps(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_fields).encode("ascii")


def _fields(value: Any) -> Dict[str, Any]:
    # `dataclasses.asdict` would copy all that is in them, too.
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"Received: {value!r}. Expected: what JSON knows")
    fields = vars(value)
    # Computed, and no field.
    return {name: fields[name] for name in fields if name != "sums"} if isinstance(value, Manifest) else fields


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")
