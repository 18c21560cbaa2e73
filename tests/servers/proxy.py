"""A proxy in front of one HTTP server: logs, faults, bandwidth caps.

Run as a process of its own, by `tests/servers/proxied.py`. On one port it takes CONNECT, behind which it ends TLS with a
certificate for the host that was asked for, and plain requests; all go to the one server behind it. A second port takes
orders as JSON.

Threads and blocking sockets: one thread for each client's connection, because the interpreter's lock is free while OpenSSL
and the kernel work. Measured with curl over TLS, a server that throws away what it gets, and two shared cores: 290 to
350 MB/s up and 450 to 480 MB/s down, for 1.4 to 1.8 and 0.95 s of processor time per GB. fake-gcs-server itself takes in
75 MB/s a connection.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import json
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
from typing import Any

import trustme

from tests.servers.fault_rules import Rule, Rules
from tests.servers.gcs_sessions import Sessions
from tests.servers.rate import Bucket

_CHUNK = 256 * 1024
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "expect",
                         "transfer-encoding", "upgrade"))
_UP, _DOWN = "up", "down"


class _Dropped(Exception):
    """The connection is to be reset."""


class _Gone(Exception):
    """The client, or the server, has closed the connection."""


class Proxy:
    """The state that all connections share."""

    def __init__(self, upstream: str, certificates: trustme.CA, sessions: Sessions | None):
        self.upstream = upstream
        self.sessions = sessions
        self.rules = Rules()
        self.total = {_UP: Bucket(None), _DOWN: Bucket(None)}
        self.each: dict[str, float | None] = {_UP: None, _DOWN: None}
        self._certificates = certificates
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()
        self._log: list[dict[str, Any]] = []

    def context_for(self, host: str) -> ssl.SSLContext:
        with self._lock:
            if host not in self._contexts:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self._certificates.issue_cert(host).configure_cert(context)
                self._contexts[host] = context
            return self._contexts[host]

    def begin(self, method: str, path: str) -> dict[str, Any]:
        """Notes a request in the log; whoever handles it fills in the rest."""
        entry = {"method": method, "path": path, "up": 0, "down": 0, "start": time.monotonic(), "end": None,
                 "status": None, "fault": None}
        with self._lock:
            self._log.append(entry)
        return entry

    def order(self, what: str, given: Any) -> Any:
        """Carries out an order of the test's."""
        if what == "fault":
            return self.rules.add(**given)
        if what == "clear":
            return self.rules.clear()
        if what == "struck":
            return {str(number): times for number, times in self.rules.struck().items()}
        if what == "caps":
            for way in (_UP, _DOWN):
                self.total[way].rate = given[way]
                self.each[way] = given[f"{way}_each"]
            return None
        if what == "log":
            with self._lock:
                return self._log[given:]
        raise ValueError(f"Received: {what}. Expected: fault, clear, struck, caps or log")


class _Connection:
    """One client's connection, to its end."""

    def __init__(self, proxy: Proxy, client: socket.socket):
        self._proxy = proxy
        self._client: Any = client  # by and by, TLS over it
        self._read = bytearray()
        self._buffer = memoryview(bytearray(_CHUNK))
        self._server: http.client.HTTPConnection | None = None
        self._each = {way: Bucket(None) for way in (_UP, _DOWN)}

    def run(self) -> None:
        try:
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._request():
                pass
        except _Dropped:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (_Gone, OSError, http.client.HTTPException):
            pass
        finally:
            # Whoever hears of it first is the client: the server may still be busy with what it got.
            for end in (self._client, self._server):
                if end is not None:
                    end.close()

    def _request(self) -> bool:
        """Handles one request. False: the client has closed the connection."""
        head = self._receive_head()
        if head is None:
            return False
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines if line]
        if method == "CONNECT":
            self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            host = target.rpartition(":")[0]
            self._client = self._proxy.context_for(host).wrap_socket(self._client, server_side=True)
            return True
        entry = self._proxy.begin(method, urllib.parse.unquote(target))
        try:
            self._forward(method, target, headers, entry)
        finally:
            entry["end"] = time.monotonic()
        return True

    def _forward(self, method: str, target: str, headers: list[tuple[str, str]], entry: dict[str, Any]) -> None:
        rule = self._proxy.rules.find(method, entry["path"])
        entry["fault"] = None if rule is None else f"{rule.kind} {rule.at}"
        for way in (_UP, _DOWN):
            self._each[way].rate = self._proxy.each[way]
        _strike(rule, "before")
        given = {name.lower(): value for name, value in headers}
        if given.get("expect", "").lower() == "100-continue":
            self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(given.get("content-length", 0))
        chunked = "chunked" in given.get("transfer-encoding", "")
        if rule is not None and (rule.kind, rule.at) == ("status", "before"):
            for piece in self._body(length, chunked):
                entry["up"] += len(piece)
            self._answer(rule.status, entry)
            return
        sessions = self._proxy.sessions
        status = sessions and sessions.answer(method, entry["path"], given.get("content-range", ""))
        if status is not None:
            self._answer(status, entry)
            return
        response = self._send(method, target, headers, length, chunked, rule, entry)
        if sessions is not None:
            sessions.note(method, entry["path"], response.status)
        _strike(rule, "after")
        if rule is not None and (rule.kind, rule.at) == ("status", "after"):
            response.read()
            self._answer(rule.status, entry)
            return
        self._relay(method, response, rule, entry)

    def _send(self, method, target, headers, length, chunked, rule, entry) -> http.client.HTTPResponse:
        server = self._server
        if server is None:
            server = self._server = http.client.HTTPConnection(self._proxy.upstream)
            server.connect()
            server.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                server.putheader(name, value)
        if chunked:
            server.putheader("Transfer-Encoding", "chunked")
        if isinstance(self._client, ssl.SSLSocket):
            server.putheader("X-Forwarded-Proto", "https")  # else the server's redirections say http
        server.endheaders()
        half = length // 2
        for piece in self._body(length, chunked):
            if half is not None and entry["up"] + len(piece) > half:
                _strike(rule, "request")
                half = None
            self._take(_UP, len(piece))
            entry["up"] += len(piece)
            server.send(b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if chunked else piece)
        if chunked:
            server.send(b"0\r\n\r\n")
        if half is not None:
            _strike(rule, "request")
        return server.getresponse()

    def _relay(self, method: str, response: http.client.HTTPResponse, rule: Rule | None, entry: dict[str, Any]) -> None:
        entry["status"] = response.status
        length = response.length  # None: unknown
        bodyless = method == "HEAD" or response.status in (204, 304)
        half = None if length is None else length // 2
        short = rule is not None and rule.kind == "short" and half is not None and not bodyless
        lines = [f"HTTP/1.1 {response.status} {response.reason}"]
        for name, value in response.getheaders():
            if name.lower() not in _HOP_BY_HOP and not (short and name.lower() == "content-length"):
                lines.append(f"{name}: {value}")
        if short:
            lines.append(f"Content-Length: {half}")
        elif length is None and not bodyless:
            lines.append("Transfer-Encoding: chunked")
        self._client.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        if bodyless:
            response.read()
            return
        while True:
            n = response.readinto(self._buffer)
            if not n:
                break
            piece = self._buffer[:n]
            if half is not None and entry["down"] + n >= half and rule is not None and rule.at == "response":
                rest = half - entry["down"]
                if rest > 0:
                    self._pass_on(piece[:rest], False, entry)
                    piece = piece[rest:]
                half = None
                if short:
                    response.close()
                    self._server.close()
                    self._server = None
                    return
                _strike(rule, "response")
            self._pass_on(piece, length is None, entry)
        if length is None:
            self._client.sendall(b"0\r\n\r\n")
        if response.will_close:
            self._server.close()
            self._server = None

    def _pass_on(self, piece: memoryview, chunked: bool, entry: dict[str, Any]) -> None:
        if not piece:
            return
        self._take(_DOWN, len(piece))
        self._client.sendall(b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if chunked else piece)
        entry["down"] += len(piece)

    def _take(self, way: str, n: int) -> None:
        self._each[way].take(n)
        self._proxy.total[way].take(n)

    def _answer(self, status: int, entry: dict[str, Any]) -> None:
        reason = http.client.responses.get(status, "Fault")
        body = json.dumps({"error": {"code": status, "message": f"{reason}: by a rule of the test"}}).encode()
        entry["status"] = status
        self._client.sendall(f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n"
                             f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _receive_head(self) -> str | None:
        while b"\r\n\r\n" not in self._read:
            n = self._client.recv_into(self._buffer)
            if not n:
                return None
            self._read += self._buffer[:n]
        head, _, rest = bytes(self._read).partition(b"\r\n\r\n")
        self._read = bytearray(rest)
        return head.decode("latin-1")

    def _body(self, length: int, chunked: bool):
        """Yields the body of a request in pieces that are valid until the next one."""
        if not chunked:
            yield from self._exactly(length)
            return
        while True:
            while b"\r\n" not in self._read:
                self._more()
            line, _, rest = bytes(self._read).partition(b"\r\n")
            self._read = bytearray(rest)
            size = int(line.split(b";")[0], 16)
            yield from self._exactly(size)
            while len(self._read) < 2:
                self._more()
            del self._read[:2]
            if size == 0:
                return

    def _exactly(self, n: int):
        if self._read and n:
            piece = bytes(self._read[:n])
            del self._read[:len(piece)]
            n -= len(piece)
            yield piece
        while n:
            got = self._client.recv_into(self._buffer, min(n, _CHUNK))
            if not got:
                raise _Gone()
            n -= got
            yield self._buffer[:got]

    def _more(self) -> None:
        n = self._client.recv_into(self._buffer)
        if not n:
            raise _Gone()
        self._read += self._buffer[:n]


def _strike(rule: Rule | None, place: str) -> None:
    """What the rule does at this place, if anything."""
    if rule is None or rule.at != place:
        return
    if rule.kind == "drop":
        raise _Dropped()
    if rule.kind == "hang":
        rule.released.wait(rule.seconds)


def _control(proxy: Proxy) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, reply = 200, proxy.order(self.path.strip("/"), given)
            except (TypeError, ValueError, KeyError) as error:
                status, reply = 400, f"{type(error).__name__}: {error}"
            body = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", required=True, help="host:port of the server behind the proxy")
    parser.add_argument("--ca", required=True, help="where to write the certificate that clients are to trust")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--gcs", action="store_true", help="the server is fake-gcs-server: see gcs_sessions.py")
    options = parser.parse_args()
    # Many short waits for a lock held for microseconds: hand it over sooner than every 5 ms.
    sys.setswitchinterval(0.0005)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(options.ca)
    proxy = Proxy(options.upstream, authority, Sessions() if options.gcs else None)
    control = _control(proxy)
    listener = socket.create_server(("127.0.0.1", options.port), backlog=128)
    print(json.dumps({"port": listener.getsockname()[1], "control": control.server_address[1]}), flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_Connection(proxy, client).run, daemon=True).start()


if __name__ == "__main__":
    main()
