"""The arithmetic: from what was measured to a job of another size. All of it is here, and none of it measures."""

import dataclasses
import math
from typing import Dict, List, Mapping

from benchmarks.scale.setting import PUBLISHED, Setting
from tfadaptcp.options import EngineOptions

_MIB = 2.0**20
# Automatic: `upload_threads`, and the most of `restore_threads`.
_UPLOADS, _READERS = 8, 16
# What a checkpoint takes of a busy machine (`ops/kernels/save_writer.cc`), for so many seconds.
_SHARE, _RESTS = 0.07, EngineOptions().for_hosts()["rest_ms"] / 1e3
# Bytes per second that a server has to write, or its checkpoint is given up.
LEAST_RATE = 1 / EngineOptions().seconds_for(1)
# What a parameter server may hold beside tables and tracker: `capture_memory_bytes` and `buffer_bytes`, at most.
_BUFFERS = 2 * 2.0**30


@dataclasses.dataclass(frozen=True)
class Figure:
    """One result.

    Attributes:
        value, unit: the number.
        what: it is, in words.
        of: the inputs, limits and parts of the setting that it follows from.
    """
    value: float
    unit: str
    what: str
    of: str


Figures = Dict[str, Figure]


def segment_bytes(checkpoint: float, setting: Setting) -> float:
    """The size of the files of a server that writes so many bytes to a remote store (`ops/kernels/save_options.cc`)."""
    return min(max(checkpoint / _UPLOADS, 2 * _MIB), setting.segment_bytes)


def objects_of(checkpoint: float, setting: Setting) -> int:
    """Files of a server that writes so many bytes."""
    return math.ceil(checkpoint / segment_bytes(checkpoint, setting)) if checkpoint else 0


def objects_of_head(setting: Setting, inputs: Mapping[str, float], delta: float, chain: int) -> int:
    """Files that a head names: a base, and so many increments, of this share of all rows each."""
    row = setting.keys / setting.ps * inputs["segment_bytes_per_row"]
    return setting.ps * (objects_of(row, setting) + chain * objects_of(delta * row, setting))


def on_a_server(setting: Setting, inputs: Mapping[str, float]) -> Figures:
    """Memory and stalls of one parameter server."""
    rows = setting.keys / setting.ps
    tables, tracker = rows * inputs["table_bytes_per_row"], rows * inputs["tracker_bytes_per_row"]
    # The largest table once more while it doubles: TFRA fills the new one from the old.
    growth = tables / setting.tables / 2
    return {
        "rows": Figure(rows, "", "rows of a ps", "keys, ps"),
        "tables": Figure(tables, "B", "tables", "rows, table_bytes_per_row"),
        "tracker": Figure(tracker, "B", "tracker", "rows, tracker_bytes_per_row"),
        "growth": Figure(growth, "B", "more while a table doubles, for want of init_capacity", "tables: half of one"),
        "memory": Figure(tables + tracker + growth + _BUFFERS, "B", "altogether, with 2 GiB of buffers",
                         "tables, tracker, growth"),
        "stall": Figure(inputs["longest_write_ms"] / 1e3 + rows * inputs["longest_write_ms_per_row"] / 1e3
                        - inputs["longest_write_rows"] * inputs["longest_write_ms_per_row"] / 1e3, "s",
                        "the longest write while the tracker grows", "rows, longest_write_ms, longest_write_ms_per_row"),
        "doubling": Figure(rows * inputs["growth_ns_per_row"] / 1e9, "s", "the longest write while a table doubles, for want "
                           "of init_capacity", "rows, growth_ns_per_row"),
        "gate": Figure(inputs["gate_ms"] / 1e3, "s", "a cut of everything under the closed gate: it swaps lists, whatever "
                       "their length", "gate_ms"),
        "resolve": Figure(rows * inputs["resolve_ns_per_row"] / 1e9, "s", "CPU of the outcome of a base",
                          "rows, resolve_ns_per_row")}


def of_a_base(setting: Setting, inputs: Mapping[str, float], share: float = 1.0) -> Figures:
    """Bytes, files, and seconds of a checkpoint that writes this share of all rows, and of reading it back."""
    rows = share * setting.keys / setting.ps
    size = rows * inputs["segment_bytes_per_row"]
    objects = objects_of(size, setting) * setting.ps
    wire, back = (8 * size / min(setting.nic_bits, n * setting.connection_bits) for n in (_UPLOADS, _READERS))
    store = 8 * size * setting.ps * setting.replication / setting.store_bits
    save = rows * inputs["save_ns_per_row"] / 1e9 / setting.cores
    restore = rows * inputs["restore_ns_per_row"] / 1e9 / setting.cores
    # Up to then it leaves a busy machine to training.
    busy = min(save / _SHARE, _RESTS + max(0.0, save - _SHARE * _RESTS))
    seconds = max(busy, wire, store)
    return {
        "bytes": Figure(size * setting.ps, "B", "written", "keys, segment_bytes_per_row"),
        "bytes_ps": Figure(size, "B", "written by a ps", "rows, segment_bytes_per_row"),
        "objects": Figure(objects, "", "files", "bytes of a ps, segment_bytes, ps"),
        "cpu": Figure(save, "s", "of all cores of a ps", "rows, save_ns_per_row, cores"),
        "busy": Figure(busy, "s", "the same while training wants the machine", "CPU, 7 % of it for 150 s"),
        "wire": Figure(wire, "s", "on a ps's line", "bytes of a ps; nic_bits, or 8 x connection_bits"),
        "store": Figure(store, "s", "through the store", "bytes, store_bits, replication"),
        "seconds": Figure(seconds, "s", "until it is stored: the longest of CPU, line, store", "busy, wire, store"),
        "restore_cpu": Figure(restore, "s", "of all cores of a ps, to restore it", "rows, restore_ns_per_row, cores"),
        "restore": Figure(max(restore, back, store / setting.replication), "s", "to restore it: the longest of CPU, line, "
                          "store", "restore_cpu; nic_bits, or 16 x connection_bits; store"),
        "touched": Figure(rows / seconds if seconds else 0.0, "per s",
                          "rows of a ps that updates may touch for the first time meanwhile: what is stored in that time",
                          "rows, seconds"),
        "writes": Figure(objects * inputs["save_writes_per_object"] / seconds if seconds else 0.0, "per s",
                         "write requests meanwhile", "objects, save_writes_per_object, seconds"),
        "creates": Figure(objects / seconds if seconds else 0.0, "per s", "files created meanwhile", "objects, seconds")}


def of_the_coordinator(setting: Setting, inputs: Mapping[str, float], objects: float) -> Figures:
    """What the coordinator does for a checkpoint whose head has so many objects."""
    def requests(phase: str) -> float:
        return sum(inputs[f"{phase}_{kind}s_per_object"] for kind in ("read", "write")) * objects

    def seconds(count: float) -> float:
        # As many at once as there may be, and no more than a bucket takes that has not scaled.
        return max(count * setting.request_ms / 1e3 / setting.at_once, count / PUBLISHED["gcs_writes"].value)

    parts = ("cut_ms", "save_ms", "resolve_ms")
    fan = {part: (inputs[part] + setting.ps * inputs[f"{part}_per_ps"]) / 1e3 for part in parts}
    listing = objects / PUBLISHED["gcs_names_per_page"].value * setting.request_ms / 1e3
    return {
        "manifest": Figure(objects * inputs["manifest_bytes"], "B", "a manifest", "objects, manifest_bytes"),
        "memory": Figure(objects * inputs["manifest_memory"], "B", "memory for manifests", "objects, manifest_memory"),
        "commit": Figure(objects * inputs["manifest_commit_us"] / 1e6, "s", "CPU of Python to commit",
                         "objects, manifest_commit_us"),
        "retention": Figure(objects * inputs["manifest_collect_us"] / 1e6, "s", "CPU of Python for retention after it",
                            "objects, manifest_collect_us"),
        "read": Figure(objects * inputs["manifest_read_us"] / 1e6, "s", "CPU of Python to read a manifest, of a restore",
                       "objects, manifest_read_us"),
        "remove": Figure(seconds(requests("remove")), "s", "to remove a base that was replaced: no checkpoint is made in a "
                         "quarter of an interval at most, until it is removed",
                         "objects, remove_..._per_object, request_ms, at_once"),
        "list": Figure(listing, "s", "to list the objects: of retention, and before the first save after a restore, when "
                       "training waits", "objects, names per page, request_ms"),
        "cut": Figure(fan["cut_ms"], "s", "a cut on all ps: training waits", "cut_ms, cut_ms_per_ps, ps"),
        "replies": Figure(fan["save_ms"], "s", "asking all ps to save, and collecting their replies",
                          "save_ms, save_ms_per_ps, ps"),
        "told": Figure(fan["resolve_ms"], "s", "telling all ps the outcome", "resolve_ms, resolve_ms_per_ps, ps"),
        "reply": Figure(objects / setting.ps * inputs["manifest_bytes"] * 2, "B", "a ps's reply, at most",
                        "objects, ps, manifest_bytes, and a full path")}


@dataclasses.dataclass(frozen=True)
class Break:
    """Something that has a limit, and the number of keys, or of parameter servers, at which it meets it, all else the same."""
    what: str
    value: float
    limit: float
    unit: str
    why: str
    at: float


def breaks(setting: Setting, inputs: Mapping[str, float], head: float) -> List[Break]:
    """Everything here that grows with the number of keys, the first to break first.

    Args:
        head: files that a head names, at most.
    """
    server, base = on_a_server(setting, inputs), of_a_base(setting, inputs)
    objects = base["objects"].value
    coordinator, largest = (of_the_coordinator(setting, inputs, n) for n in (objects, head))
    interval = setting.interval_seconds
    found = [
        ("removing a base that was replaced", coordinator["remove"].value, interval, "s",
         "it takes more than four passes, of a quarter of the interval each"),
        ("listing the objects of a restored head", largest["list"].value, 60.0, "s", "training stands still"),
        ("Python of commit and retention", largest["commit"].value + largest["retention"].value, interval / 20, "s",
         "a twentieth of the interval: the thread that schedules steps shares the interpreter"),
        ("memory of a ps", server["memory"].value, setting.memory_bytes, "B", "the kernel kills it"),
        ("the longest write while a table doubles, for want of init_capacity", server["doubling"].value, 1.0, "s", "steps wait"),
        ("the same, when a cut comes", server["doubling"].value, 30.0, "s",
         "it waits no longer, and that checkpoint has failed: the next one has its rows"),
        ("the longest write while the tracker grows", server["stall"].value, 1.0, "s", "steps wait"),
        ("files of a base in one directory, HDFS", objects, PUBLISHED["hdfs_directory_items"].value, "names",
         "the name node refuses more"),
        ("memory of the coordinator", largest["memory"].value, setting.memory_bytes, "B", "the kernel kills it"),
        ("a restore, or a base read beside training", max(base["restore"].value, base["seconds"].value), 6 * 3600.0, "s",
         "they are given up (the restore by `restore_timeout_seconds`, which may be more)"),
        ("a reply of a ps", coordinator["reply"].value, PUBLISHED["grpc_message_bytes"].value, "B", "gRPC refuses it")]
    return sorted((Break(what, value, limit, unit, why, setting.keys * limit / value)
                   for what, value, limit, unit, why in found if value > 0), key=lambda item: item.at)


def breaks_by_servers(setting: Setting, inputs: Mapping[str, float]) -> List[Break]:
    """Everything here that grows with the number of parameter servers, over the same number of keys."""
    cut = of_the_coordinator(setting, inputs, 0)["cut"].value
    rate = setting.store_bits / 8 / int(PUBLISHED["hdfs_replication"].value) / setting.ps
    found = [Break("a cut", cut, 1.0, "s", "training waits", (1e3 - inputs["cut_ms"]) / inputs["cut_ms_per_ps"]),
             Break("what a ps gets of the store's line, HDFS", rate, LEAST_RATE, "B/s", "a base is given up",
                   setting.ps * rate / LEAST_RATE)]
    return sorted(found, key=lambda item: item.at)
