"""Incremental checkpoints as systems without a background writer make them."""

import dataclasses

from tfadaptcp.options import EngineOptions
from tfadaptcp.policies.simple import Incremental


@dataclasses.dataclass(frozen=True)
class IncrCkpt(Incremental):
    """`Incremental` as a baseline: training stands still until a checkpoint is stored, and every base is a cut.

    Args:
        full_every: "Incr CKPT-N": a new base after that many increments; `policies.get("incr_ckpt_10")` for 10. None:
            native incremental, `policies.get("native_incremental")`: no base but the first.
    """

    snapshot_bases = True
    engine_options = EngineOptions(capture="blocking", writer_threads=1, upload_threads=1)
    on_pending = "wait"

    @property
    def name(self) -> str:
        return "native_incremental" if self.full_every is None else f"incr_ckpt_{self.full_every}"
