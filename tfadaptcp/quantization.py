"""How the values of tables are quantised in files."""

import dataclasses
from typing import Any, Dict, Iterable, List, Optional, Union

from tfadaptcp.embeddings import discovery

WIDTHS = (2, 3, 4, 8)
METHODS = ("symmetric", "asymmetric", "adaptive", "kmeans", "bfloat16", "auto")
# By the most restores that a training job may go through: more errors add up where more restores are to come.
_WIDTH_FOR = {1: 2, 3: 3, 20: 4}
_FALLBACK = 8


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Row-wise quantisation of what is written; what is in training is never touched.

    Example::

        callback = tfadaptcp.AdaptCPCallback("/checkpoints/run7", quantization=tfadaptcp.Quantization(4, "adaptive"))

    It is for tables of floating point: others, the status of restrict policies and dense variables are always written as
    they are; so are rows with NaN or infinite elements, and tables whose rows it would not make smaller (as of dim 1). A
    row whose elements are all the same comes back exactly. A checkpoint may go on from one of another quantization.

    Args:
        bits: of each value: 2, 3, 4 or 8. "auto": 2 for up to 1 expected restore, 3 for up to 3, 4 for up to 20, 8 for
            more; and 8 from then on if there were more restores than expected. None: 8, with "bfloat16" 16.
        method: per row, a grid from the least to the greatest value ("asymmetric"), of plus and minus the greatest
            magnitude ("symmetric"), or one within, found by search, whose error is never greater than that of
            "asymmetric" ("adaptive": worth its time with 4 bits and fewer); a codebook ("kmeans"); "bfloat16" rounds
            each value to 16 bits. "auto": "adaptive" with 4 bits and fewer, "asymmetric" with 8.
        slots: for the tables of optimizer slots: a `Quantization` of their own, which with bits="auto" goes by
            `expected_restores` of its own; "raw" or False: as they are. None:
            "bfloat16", whose error is relative to each value. On a grid Adam's small second moments vanish beside
            large ones, and the first step after a restore then is a leap for these elements.
        expected_restores: restores that the job will go through, for bits="auto". Restores are counted in the
            checkpoints of a lineage, from its first on; one in part or into another directory begins anew.

    Raises:
        ValueError: a value is unknown, or two don't fit.
    """

    bits: Union[None, int, str] = None
    method: str = "asymmetric"
    slots: Union[None, bool, str, "Quantization"] = None
    expected_restores: int = 20

    def __post_init__(self):
        if self.method not in METHODS:
            raise ValueError(f"method: Received: {self.method!r}. Expected: one of {METHODS}")
        widths = (16,) if self.method == "bfloat16" else (*WIDTHS, "auto")
        if self.bits is None:
            object.__setattr__(self, "bits", 16 if self.method == "bfloat16" else _FALLBACK)
        if isinstance(self.bits, bool) or not isinstance(self.bits, (int, str)) or self.bits not in widths:
            raise ValueError(f"bits: Received: {self.bits!r}. Expected: one of {widths} with method {self.method!r}")
        if isinstance(self.slots, Quantization):
            if self.slots.slots is not None:
                raise ValueError(f"slots: Received: {self.slots!r}. Expected: a Quantization without slots of its own")
        elif self.slots not in (None, False, "raw"):
            raise ValueError(f"slots: Received: {self.slots!r}. Expected: None, 'raw', False or a Quantization")
        if isinstance(self.expected_restores, bool) or not isinstance(self.expected_restores, int) \
                or self.expected_restores < 0:
            raise ValueError(f"expected_restores: Received: {self.expected_restores!r}. Expected: an integer of at least 0")

    def decide(self, restores: int = 0) -> Dict[str, Any]:
        """What it is after `restores` restores: {"method", "bits", "slots": the same for slots, None if they are raw}."""
        bits = self.bits
        if bits == "auto":
            fitting = [width for most, width in _WIDTH_FOR.items() if self.expected_restores <= most]
            bits = fitting[0] if fitting and restores <= self.expected_restores else _FALLBACK
        method = self.method if self.method != "auto" else "adaptive" if bits <= 4 else "asymmetric"
        if isinstance(self.slots, Quantization):
            slots = self.slots.decide(restores)
            slots.pop("slots")
        else:
            slots = {"method": "bfloat16", "bits": 16} if self.slots is None else None
        return {"method": method, "bits": bits, "slots": slots}


# What callback and manager take.
Choice = Union[None, str, Quantization]


def get(quantization: Choice) -> Optional[Quantization]:
    """The argument of callback and manager as a Quantization, None if values stay as they are. Raises ValueError."""
    if quantization == "auto":
        return Quantization("auto", "auto")
    if quantization is None or isinstance(quantization, Quantization):
        return quantization
    raise ValueError(f"quantization: Received: {quantization!r}. Expected: None, 'auto' or a Quantization")


def encodings(decided: Optional[Dict[str, Any]], groups: Iterable[discovery.Group]) -> Dict[str, List[List[Any]]]:
    """{group: [method, bits] per table}, as hosts are told; groups that stay as they are are left out."""
    if decided is None:
        return {}
    raw = ["raw", 0]
    parameter = [decided["method"], decided["bits"]]
    slots = raw if decided["slots"] is None else [decided["slots"]["method"], decided["slots"]["bits"]]
    return {group.name: [parameter if i == 0 else slots if table.is_slot else raw
                         for i, table in enumerate(group.tables)] for group in groups}


def describe(decided: Optional[Dict[str, Any]]) -> str:
    """What was decided, for people: "adaptive 4, slots bfloat16"; "" if values were written as they are."""
    if not decided:
        return ""

    def name(entry: Dict[str, Any]) -> str:
        return entry["method"] if entry["method"] == "bfloat16" else f"{entry['method']} {entry['bits']}"
    slots = "raw" if decided.get("slots") is None else name(decided["slots"])
    return f"{name(decided)}, slots {slots}"
