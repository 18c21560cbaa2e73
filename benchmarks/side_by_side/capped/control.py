"""The page that all processes of a benchmark share: caps of the store, and what has passed it. See `control.h`."""

import mmap
import os
import struct
from typing import Dict

VARIABLE = "ADAPTCP_BENCH_CAPS"
_MAGIC = 0x3144455050414331
_FIELDS = ("magic", "bytes_per_second_each", "bytes_per_second_total", "latency_us", "write_free_ns", "read_free_ns",
           "bytes_written", "bytes_read", "objects_written", "objects_opened", "requests", "open_now", "open_most",
           "longest_open_ns", "most_bytes_of_a_connection", "waited_ns", "cpu_ns", "line_ns", "line_lock", "line_waiting",
           "line_since_ns")
_INTERNAL = ("magic", "write_free_ns", "read_free_ns", "line_lock", "line_waiting", "line_since_ns")
_MAXIMA = ("open_most", "longest_open_ns", "most_bytes_of_a_connection")
_SIZE = 8 * len(_FIELDS)


class Control:
    """Sets caps and reads counters, while other processes read and write files.

    Args:
        path: of the page; made if there is none. Processes find it by the environment variable `VARIABLE`.
    """

    def __init__(self, path: str):
        self.path = path
        is_new = not os.path.exists(path)
        with open(path, "w+b" if is_new else "r+b") as file:
            if is_new:
                file.write(struct.pack("q", _MAGIC).ljust(_SIZE, b"\0"))
                file.flush()
            self._page = mmap.mmap(file.fileno(), _SIZE)

    def cap(self, each: float = 0, total: float = 0, latency_us: int = 0) -> None:
        """Sets bytes per second of a connection, and of all of them in each direction; 0: no cap."""
        for field, value in (("bytes_per_second_each", each), ("bytes_per_second_total", total), ("latency_us", latency_us)):
            if value < 0:
                raise ValueError(f"{field}: Received: {value!r}. Expected: 0 or more")
            self._set(field, int(value))

    def counters(self) -> Dict[str, int]:
        """What was counted since the page was made; maxima since `forget_maxima`."""
        return {field: value for field, value in zip(_FIELDS, struct.unpack_from(f"{len(_FIELDS)}q", self._page))
                if field not in _INTERNAL}

    def forget_maxima(self) -> None:
        """Begins maxima anew."""
        for field in _MAXIMA:
            self._set(field, 0)

    def _set(self, field: str, value: int) -> None:
        struct.pack_into("q", self._page, 8 * _FIELDS.index(field), value)


def moved(before: Dict[str, int], after: Dict[str, int]) -> Dict[str, int]:
    """What passed between two readings; maxima, and what is open, as they were at the second."""
    return {field: value if field in _MAXIMA or field == "open_now" or field.startswith(("bytes_per", "latency"))
            else value - before[field] for field, value in after.items()}
