"""Google Cloud Storage: fake-gcs-server behind the proxy.

TensorFlow's file system has the service's addresses built in; it gets here as a client behind a firewall would, through
`https_proxy`, and takes our certificate from `CURL_CA_BUNDLE`. It reads its own variables, `GCS_*`, when TensorFlow is
loaded: so tests use gs:// in processes that start with `environment`.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from tests.servers.program import ROOT, Program, free_port, listens
from tests.servers.proxied import Proxied, Request
from tools import build_gcs

BUCKET = "bucket"
SERVER = build_gcs.server(ROOT / ".cache")
# The product retries by itself; that TensorFlow does so too would only make tests of it slow.
IMPATIENT = {"GCS_RETRY_CONFIG_MAX_RETRIES": "0", "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "1000",
             "GCS_REQUEST_CONNECTION_TIMEOUT_SECS": "5", "GCS_REQUEST_IDLE_TIMEOUT_SECS": "1",
             "GCS_METADATA_REQUEST_TIMEOUT_SECS": "5", "GCS_READ_REQUEST_TIMEOUT_SECS": "20",
             "GCS_WRITE_REQUEST_TIMEOUT_SECS": "20",
             # Memory of this size is filled with zeros for each file that is opened.
             "GCS_READ_CACHE_BLOCK_SIZE_MB": "1"}


class Gcs:
    """A server in memory with one bucket, `gs://bucket`, and the proxy before it."""

    def __init__(self, folder: Path):
        port = free_port()
        self._server = Program([str(SERVER), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port",
                                str(port), "-log-level", "warn"], folder / "fake-gcs-server.log")
        self._server.wait_until(lambda: listens(port))
        request = urllib.request.Request(f"http://127.0.0.1:{port}/storage/v1/b?project=test",
                                         json.dumps({"name": BUCKET}).encode(), {"Content-Type": "application/json"})
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
        self.proxy = Proxied.start(f"127.0.0.1:{port}", folder, "--gcs")

    @property
    def environment(self) -> dict[str, str]:
        """What processes that use gs:// need from their start; `GCS_PROXY` is for `Proxied.connect`."""
        return {"https_proxy": f"http://127.0.0.1:{self.proxy.port}", "CURL_CA_BUNDLE": str(self.proxy.ca),
                "NO_GCE_CHECK": "true", "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token", "GCS_PROXY": self.proxy.tell(),
                **IMPATIENT}

    def stop(self) -> None:
        self.proxy.stop()
        self._server.stop()


def is_upload(request: Request) -> bool:
    """Whether a request carries an object to the server: questions about an upload carry nothing."""
    return request.method == "PUT" and "upload_id=" in request.path and (request.up > 0 or request.status == 200)


def is_read(request: Request) -> bool:
    """Whether a request gets an object, or a range of one."""
    return request.method == "GET" and request.path.startswith(f"/{BUCKET}/")


def written(log: Iterable[Request]) -> list[str]:
    """The names of the objects that were written, each as often as it was."""
    names = []
    for request in log:
        if request.status == 200 and (is_upload(request) or "uploadType=media" in request.path):
            names.append(urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)["name"][0])
    return names
