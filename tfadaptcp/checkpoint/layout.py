"""The names of the objects in a checkpoint directory.

    claims/<generation>-<run>                         one per start of a writing coordinator
    manifests/<generation>-<sequence>-<run>.json      what makes a checkpoint exist
    data/<generation>-<sequence>-<run>/<object>       segments of rows and of dense state

Numbers are decimal, padded with zeros so that names sort as the numbers do; a run is 12 to 32 hex digits. Paths inside
manifests are relative to the directory, so that a copy of it is as valid as the original.
"""

import re
import secrets
from typing import NamedTuple, Optional

CLAIMS = "claims"
MANIFESTS = "manifests"
DATA = "data"
PROBE_PREFIX = "probe-"

_DIGITS = 10
_LIMIT = 10 ** _DIGITS
_RUN = re.compile(r"[0-9a-f]{12,32}")
_CLAIM = re.compile(r"([0-9]{10})-([0-9a-f]{12,32})")
_HEAD = re.compile(r"([0-9]{10})-([0-9]{10})-([0-9a-f]{12,32})")
_OBJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*")


class ClaimName(NamedTuple):
    """A claim; claims compare as (generation, run)."""
    generation: int
    run: str

    def __str__(self) -> str:
        return f"{self.generation:0{_DIGITS}d}-{self.run}"


class HeadName(NamedTuple):
    """The name of a checkpoint. `order` is the order of heads: (generation, run, sequence), never by step or time."""
    generation: int
    sequence: int
    run: str

    def __str__(self) -> str:
        return f"{self.generation:0{_DIGITS}d}-{self.sequence:0{_DIGITS}d}-{self.run}"

    @property
    def order(self):
        return self.generation, self.run, self.sequence

    @property
    def claim(self) -> ClaimName:
        return ClaimName(self.generation, self.run)


class ObjectName(NamedTuple):
    """`data/<head>/<name>`."""
    head: HeadName
    name: str

    def __str__(self) -> str:
        return f"{DATA}/{self.head}/{self.name}"


def new_run() -> str:
    """Returns a fresh run identifier."""
    return secrets.token_hex(6)


def claim_name(generation: int, run: str) -> ClaimName:
    """Checks and builds a claim's name. Raises ValueError."""
    return ClaimName(_number("generation", generation), _run(run))


def head_name(generation: int, sequence: int, run: str) -> HeadName:
    """Checks and builds a checkpoint's name. Raises ValueError."""
    return HeadName(_number("generation", generation), _number("sequence", sequence), _run(run))


def manifest_path(name: HeadName) -> str:
    """Returns the path of a manifest, relative to the directory."""
    return f"{MANIFESTS}/{name}.json"


def data_path(name: HeadName) -> str:
    """Returns the path of a checkpoint attempt's data, relative to the directory."""
    return f"{DATA}/{name}"


def parse_claim(text: str) -> Optional[ClaimName]:
    """Returns the claim a name in `claims/` stands for, or None if it is none of ours."""
    match = _CLAIM.fullmatch(text)
    return match and ClaimName(int(match[1]), match[2])


def parse_head(text: str) -> Optional[HeadName]:
    """Returns the head that a checkpoint's name stands for, or None if it isn't one."""
    match = _HEAD.fullmatch(text)
    return match and HeadName(int(match[1]), int(match[2]), match[3])


def parse_manifest(text: str) -> Optional[HeadName]:
    """Returns the head that a name in `manifests/` stands for, or None if it is none of ours."""
    return parse_head(text[:-len(".json")]) if text.endswith(".json") else None


def parse_object(path: str) -> ObjectName:
    """Parses the path of a data object, relative to the directory.

    Raises:
        ValueError: absolute, with "..", or of any other form than `data/<head>/<name>`.
    """
    parts = path.split("/")
    head = parse_head(parts[1]) if len(parts) == 3 and parts[0] == DATA else None
    if head is None or not _OBJECT.fullmatch(parts[2]):
        raise ValueError(f"Received: object path {path!r}. Expected: data/<generation>-<sequence>-<run>/<name>")
    return ObjectName(head, parts[2])


def _number(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LIMIT:
        raise ValueError(f"Received: {what} {value!r}. Expected: an integer from 0 to {_LIMIT - 1}")
    return value


def _run(value: str) -> str:
    if not isinstance(value, str) or not _RUN.fullmatch(value):
        raise ValueError(f"Received: run {value!r}. Expected: 12 to 32 lower-case hexadecimal digits")
    return value
