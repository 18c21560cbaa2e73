"""S3: moto's server behind the proxy, in plain HTTP."""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path

from tests.servers.program import Program, free_port, listens
from tests.servers.proxied import Proxied

BUCKET = "bucket"


class S3:
    """A server in memory with one bucket, `s3://bucket`, and the proxy before it."""

    def __init__(self, folder: Path):
        port = free_port()
        self._server = Program([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                               folder / "moto.log", {**os.environ})
        self._server.wait_until(lambda: listens(port), 60)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
        self.proxy = Proxied.start(f"127.0.0.1:{port}", folder)

    @property
    def environment(self) -> dict[str, str]:
        """What processes that use s3:// need from their start; `S3_PROXY` is for `Proxied.connect`."""
        return {"S3_ENDPOINT": f"http://127.0.0.1:{self.proxy.port}", "S3_REQUEST_TIMEOUT_MSEC": "3000", "S3_CONNECT_TIMEOUT_MSEC": "2000",
                "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
                "S3_DISABLE_MULTI_PART_DOWNLOAD": "1", "S3_PROXY": self.proxy.tell(), "AWS_EC2_METADATA_DISABLED": "true"}

    def stop(self) -> None:
        self.proxy.stop()
        self._server.stop()
