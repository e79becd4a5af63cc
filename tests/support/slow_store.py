"""A store with one object, on loopback, whose answers take a while: for reads of ranges ahead."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowStore:
    """The server. It answers HEAD and ranges as S3 does, for any name of an object.

    data: the bytes of the object. seconds: how long each range takes.

    Attributes:
        url: of the object, with the address of the server.
        ranges: (start, stop) of each range that was asked for, in the order of the requests.
        most_at_once: how many ranges were answered at the same time.
    """

    def __init__(self, data: bytes, seconds: float):
        self.data = data
        self.seconds = seconds
        self.ranges: list[tuple[int, int]] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self._send(200, b"", len(store.data))

            def do_GET(self):
                first, last = re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups()
                stop = min(int(last) + 1, len(store.data))
                data = store.answer(int(first), stop)
                self._send(206, data, len(data))

            def _send(self, code, data, size):
                self.send_response(code)
                self.send_header("Content-Length", str(size))
                self.send_header("ETag", '"one"')
                self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        address = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"s3://a:b@bucket/orders-0/0.log?endpoint_override={address}&region=us-east-1"

    def answer(self, start: int, stop: int) -> bytes:
        """Return the bytes of a range, after a while."""
        with self._lock:
            self.ranges.append((start, stop))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        return self.data[start:stop]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *raised):
        self._server.shutdown()
        self._server.server_close()
