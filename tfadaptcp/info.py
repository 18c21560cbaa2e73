"""What callers are told about checkpoints and restores."""

import dataclasses
from typing import Dict, List, Optional

from tfadaptcp.checkpoint import chain
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.quantization import describe


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint.

    Attributes:
        name: `<generation>-<sequence>-<run>`: what `checkpoint=` takes. It stays valid when the directory is copied.
        sequence, run, generation: its parts.
        step: `optimizer.iterations` at the cut.
        epoch: epochs completed at the cut.
        batch: batches completed in the current epoch.
        created: UTC, ISO 8601.
        policy: the policy's name.
        consistency: "step" or "row", see `EngineOptions`.
        rows: {kind: {group: rows written or referenced}}, kinds being "base", "increment" and "differential"; None until
            the checkpoint is durable.
        bytes: bytes that a restore of it reads; None until it is durable.
        bytes_written: bytes that this checkpoint wrote; None until it is durable.
        quantization: that of the rows it wrote, as "adaptive 4, slots bfloat16"; "" if it wrote them as they are.
        restores: how many restores its lineage has gone through.
    """
    name: str
    sequence: int
    run: str
    generation: int
    step: int
    epoch: int
    batch: int
    created: str
    policy: str
    consistency: str
    rows: Optional[Dict[str, Dict[str, int]]] = None
    bytes: Optional[int] = None
    bytes_written: Optional[int] = None
    quantization: str = ""
    restores: int = 0

    @staticmethod
    def of(manifest: Manifest, durable: bool = True) -> "CheckpointInfo":
        """The info of a manifest; without what is only known of durable ones if it isn't."""
        written = sum(ref.bytes for ref in manifest.objects if ref.path.split("/")[1] == manifest.identity)
        return CheckpointInfo(
            manifest.name, manifest.sequence, manifest.run, manifest.generation, manifest.step, manifest.epoch,
            manifest.batch, manifest.created, manifest.policy.get("name", ""), manifest.consistency,
            rows=manifest.rows if durable else None, bytes=manifest.bytes if durable else None,
            bytes_written=written if durable else None,
            quantization=describe(manifest.policy.get("quantization")), restores=chain.restores(manifest))


@dataclasses.dataclass(frozen=True)
class RestoreReport:
    """What a restore did.

    Attributes:
        checkpoint: the name of the checkpoint restored.
        step, epoch, batch: as in its `CheckpointInfo`; `fit(initial_epoch=report.epoch, epochs=...)` goes on from there.
        rows: {table: its rows} of those restored, slots included.
        bytes_read: of all objects read, by all parameter servers together.
        seconds: wall time.
        missing: tables and dense variables of the model that the checkpoint lacks (with `strict=False`).
        unexpected: those of the checkpoint that the model lacks (with `strict=False`).
        peak_bytes: the most that a parameter server held of files in memory at a time.
        reader_threads: the most threads that read files on one.
    """
    checkpoint: str
    step: int
    epoch: int
    batch: int
    rows: Dict[str, int]
    bytes_read: int
    seconds: float
    missing: List[str] = dataclasses.field(default_factory=list)
    unexpected: List[str] = dataclasses.field(default_factory=list)
    peak_bytes: int = 0
    reader_threads: int = 0
