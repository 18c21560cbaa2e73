"""The job that is reckoned with, what stores promise, and what is assumed because nobody publishes it."""

import dataclasses
from typing import Dict

from benchmarks import without_tensorflow  # noqa: F401  (first)
from tfadaptcp.checkpoint import at_once


@dataclasses.dataclass(frozen=True)
class Setting:
    """A job, its machines and its store.

    Attributes:
        keys, ps, dim, tables: of one embedding: with Adam three tables of float32.
        cores, memory_bytes, nic_bits: of each parameter server.
        connection_bits: that a connection to the store gets.
        store_bits: bits per second that the store takes or gives altogether.
        replication: copies that the store writes through its own network.
        request_ms: until the store has answered a small request.
        interval_seconds: from checkpoint to checkpoint.
        at_once: requests that the coordinator has on their way to a store at one time.
        segment_bytes: the most that a file gets, automatically, in a remote store.
    """
    keys: float = 1e10
    ps: int = 100
    dim: int = 64
    tables: int = 3
    cores: int = 32
    memory_bytes: float = 256e9
    nic_bits: float = 25e9
    connection_bits: float = 4e8
    store_bits: float = 200e9
    replication: int = 1
    request_ms: float = 30.0
    interval_seconds: float = 600.0
    at_once: int = at_once.REMOTE_CALLS
    segment_bytes: float = float(64 << 20)


# What of a setting is an assumption, for the report.
ASSUMED = {
    "cores": "of a parameter server", "memory_bytes": "of a parameter server", "nic_bits": "of a parameter server, bit/s",
    "connection_bits": "of one connection to the store, bit/s",
    "store_bits": "bit/s that the store takes and gives altogether: for Google's see the bandwidth quota of a project "
                  "and region (\"Quotas and limits\"), which can be raised; for HDFS what its disks give",
    "request_ms": "a small request to the store", "interval_seconds": "from checkpoint to checkpoint"}


@dataclasses.dataclass(frozen=True)
class Published:
    """A limit that a store's own documents name."""
    value: float
    unit: str
    what: str
    source: str


_RATES = "Google Cloud, \"Request rate and access distribution guidelines\": cloud.google.com/storage/docs/request-rate"
_QUOTAS = "Google Cloud, \"Quotas and limits\": cloud.google.com/storage/quotas"
_HDFS = "Apache Hadoop, \"hdfs-default.xml\""
PUBLISHED: Dict[str, Published] = {
    "gcs_writes": Published(1000, "per s", "object writes, deletions included, that a bucket takes before it has scaled", _RATES),
    "gcs_reads": Published(5000, "per s", "object reads, listings included, likewise", _RATES),
    "gcs_names_per_page": Published(1000, "names", "in an answer to a listing",
                                    "Google Cloud, \"Objects: list\": cloud.google.com/storage/docs/json_api/v1/objects/list"),
    "gcs_object_bytes": Published(5 * 2.0**40, "B", "the largest object", _QUOTAS),
    "gcs_writes_of_a_name": Published(1, "per s", "writes to the same object name", _QUOTAS),
    "hdfs_directory_items": Published(1048576, "names", "in a directory: dfs.namenode.fs-limits.max-directory-items", _HDFS),
    "hdfs_block_bytes": Published(134217728, "B", "a block: dfs.blocksize", _HDFS),
    "hdfs_replication": Published(3, "copies", "of a block: dfs.replication", _HDFS),
    "hdfs_bytes_per_object": Published(150, "B", "of the name node's memory, for each file and each block",
                                       "Cloudera, \"HDFS: Disk space versus namespace\""),
    "hdfs_creates": Published(5600, "per s", "files created, by one name node",
                              "K. V. Shvachko, \"HDFS scalability: the limits to growth\", ;login: April 2010"),
    "grpc_message_bytes": Published(2.0**31 - 1, "B", "a message between TensorFlow's processes",
                                    "TensorFlow, GetChannelArguments in grpc_channel.cc")}
