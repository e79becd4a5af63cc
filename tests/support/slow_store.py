"""A store of objects on loopback whose answers take a while: for what is read ahead."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowStore:
    """The server. It answers HEAD, ranges and listings as S3 does.

    data: the bytes of each object, of any name, unless there are `objects`. seconds: how long each
    range takes. objects: name -> bytes. They are listed. Those that are None do not exist.

    Attributes:
        url: of an object, with the address of the server.
        ranges: (start, stop) of each range that was asked for, in the order of the requests.
        heads: how often an object was opened, or its size asked for.
        most_at_once: how many ranges were answered at the same time.
    """

    def __init__(self, data: bytes, seconds: float, objects: dict[str, bytes | None] | None = None):
        self.data = data
        self.seconds = seconds
        self.objects = objects or {}
        self.ranges: list[tuple[int, int]] = []
        self.heads = 0
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                store.heads += 1
                data = store.find(self.path)
                self._send(404 if data is None else 200, b"", len(data or b""))

            def do_GET(self):
                if "list-type" in self.path:
                    listing = store.list_objects()
                    return self._send(200, listing, len(listing))
                first, last = re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups()
                data = store.answer(self.path, int(first), int(last) + 1)
                return self._send(206, data, len(data))

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
        self._options = f"?endpoint_override={address}&region=us-east-1"
        self.url = self.make_url("orders-0/0.log")

    def make_url(self, name: str) -> str:
        """Return the URL of an object or directory."""
        return f"s3://a:b@bucket/{name}{self._options}"

    def find(self, path: str) -> bytes | None:
        """Return the bytes of the object of a request's path; None if there is none."""
        name = path.partition("?")[0].removeprefix("/bucket").lstrip("/")
        if not name:
            return b""  # the bucket
        return self.objects.get(name) if self.objects else self.data

    def list_objects(self) -> bytes:
        """Return the answer to a listing. The prefix of the request is not looked at."""
        entries = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(data or b'')}</Size>"
            "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, data in self.objects.items()
        )
        return f"<ListBucketResult><Name>bucket</Name>{entries}</ListBucketResult>".encode()

    def answer(self, path: str, start: int, stop: int) -> bytes:
        """Return the bytes of a range, after a while."""
        data = self.find(path)[start:stop]
        with self._lock:
            self.ranges.append((start, start + len(data)))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        return data

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *raised):
        self._server.shutdown()
        self._server.server_close()
