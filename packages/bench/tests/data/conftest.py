"""A local server of one data file: the tests reach no other."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

LINES = [f"{i},{i * i % 7}" for i in range(40_000)]  # several chunks
CONTENT = "\n".join(["x,y", *LINES]).encode() + b"\n"
HASH = hashlib.sha256("\n".join(LINES).encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT the way the server's `mode` says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.n_requests += 1
        if server.barrier is not None:
            server.barrier.wait(timeout=10)
        if server.mode == "silent":
            server.released.wait(timeout=10)
            self.close_connection = True
        elif server.mode.isdigit() or not server.url.endswith(self.path):
            self.answer(int(server.mode) if server.mode.isdigit() else 404, b"sorry")
        elif server.mode == "cut":
            self.answer(200, CONTENT, send=len(CONTENT) // 2)
        else:
            damaged = CONTENT.replace(b"7,0", b"7,9", 1)
            self.answer(200, damaged if server.mode == "damaged" else CONTENT)

    def answer(self, status, body, *, send=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:send])
        if send is not None:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.mode, server.n_requests, server.barrier = "whole", 0, None
    server.content, server.hash = CONTENT, HASH
    server.released = threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}/tiny.csv"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()
