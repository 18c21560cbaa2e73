"""How much a restore reads from gs://, with what TensorFlow reads ahead: run in a process that can reach the server."""

import tfadaptcp
from tests.servers import gcs
from tests.stores.gcs_product import proxy
from tests.support import oracle, rows


def each_byte_is_read_once(directory: str) -> dict[str, int]:
    """Returns how many requests it took, for how many objects."""
    model = oracle.build("momentum", devices=["/CPU:0"], dim=64)
    manager = tfadaptcp.CheckpointManager(model, directory, "full")
    rows.write(model, range(20_000))
    manager.save()
    copy = oracle.take(model)
    manager.wait()
    since = len(proxy().log())
    report = model.load_adaptcp(directory)
    oracle.check(copy, model)
    reads = [request for request in proxy().log(since) if gcs.is_read(request) and request.path.endswith(".seg")]
    assert sum(request.down for request in reads) == report.bytes_read, reads
    return {"reads": len(reads), "objects": len({request.path for request in reads}), "bytes": report.bytes_read}
