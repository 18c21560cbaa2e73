"""What is to be measured: a cell is one system under one set of conditions, once."""

import dataclasses
import re
from typing import Dict, List

# Bytes per second of a connection in the published regime: with them native incremental, one writer on each parameter
# server, loses about three quarters of its throughput at an interval of 100 batches.
PUBLISHED_EACH = 2_500_000
TOTAL = 20 * PUBLISHED_EACH
# Caps of the store: (each connection, all of them in each direction), in bytes per second; 0: none. "local": read from
# the local disk by its own name, for restores only.
REGIMES: Dict[str, tuple] = {"published": (PUBLISHED_EACH, TOTAL), "equal": (0, TOTAL), "none": (0, 0), "local": (0, 0)}
TRAINING_REGIMES = ("published", "equal", "none")
INTERVALS = (100, 300, 1000, 3000, 10_000)
ROWS = (1_000_000, 5_000_000, 20_000_000)
ROUNDS = 5
# Of training in each cell.
SECONDS = 40.0


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        kind: "train" or "restore".
        system: a name of `systems.SYSTEMS`.
        interval: batches between checkpoints.
        rows: of each of the three tables at the beginning; the key space has twice as many.
        pending: what a save does that comes due while one is written: "wait" or "skip".
        checkpoints: that a restore has behind it; 0 for training.
        restore_ps: parameter servers that it is restored into; 0 for training.
    """
    system: str
    interval: int = 100
    regime: str = "published"
    rows: int = 5_000_000
    ps: int = 2
    pending: str = "wait"
    round: int = 0
    kind: str = "train"
    checkpoints: int = 0
    restore_ps: int = 0

    def __post_init__(self):
        for field, choices in (("regime", tuple(REGIMES)), ("pending", ("wait", "skip")),
                               ("kind", ("train", "restore"))):
            if getattr(self, field) not in choices:
                raise ValueError(f"{field}: Received: {getattr(self, field)!r}. Expected: one of {choices}")
        if not re.fullmatch(r"[a-z0-9_]+", self.system):
            raise ValueError(f"system: Received: {self.system!r}. Expected: lower-case letters, digits and underscores")

    @property
    def key(self) -> str:
        """The name of its file."""
        parts = [self.kind, self.system, f"every{self.interval}", self.regime, f"{self.rows}rows", f"{self.ps}ps",
                 self.pending]
        if self.kind == "restore":
            parts += [f"{self.checkpoints}checkpoints", f"into{self.restore_ps}ps"]
        return "-".join([*parts, f"round{self.round}"])

    @property
    def conditions(self) -> "Cell":
        """The cell without its system and round: what it may be compared with."""
        return dataclasses.replace(self, system="any", round=0)


def plan(systems: List[str], cells: List[Cell], rounds: int = ROUNDS) -> List[Cell]:
    """All rounds of all systems under the conditions of `cells`, in the order in which they are to be measured.

    Rounds are interleaved, so that drift of the machine meets all systems alike; within each the order turns.
    """
    planned = []
    for number in range(rounds):
        for place, conditions in enumerate(cells):
            first = (number + place) % len(systems)
            planned += [dataclasses.replace(conditions, system=name, round=number)
                        for name in systems[first:] + systems[:first]]
    return planned
