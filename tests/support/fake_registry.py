"""A schema registry with the part of the REST interface that readers need."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USER = "reader:se:cret"


@contextlib.contextmanager
def serve_schemas(
    answers: Mapping[int | str, object], *, asks_user: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yield the host and port of a registry, and the paths that are asked for.

    answers: for a path, for a path without its query, or for an id: the schema; or bytes: the whole
        answer; or a number: an error's status.
    """
    asked: list[str] = []
    expected = "Basic " + base64.b64encode(USER.encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if asks_user and self.headers.get("Authorization") != expected:
                self.answer(401, b'{"error_code":401}')
                return
            path = self.path.partition("?")[0]
            keys = (self.path, path, int(path.rpartition("/")[2]))
            schema = next((answers[key] for key in keys if key in answers), None)
            if isinstance(schema, int):
                self.answer(schema, b"<html>an error</html>")
            elif schema is None:
                self.answer(404, b'{"error_code":40403,"message":"Schema not found"}')
            elif isinstance(schema, bytes):
                self.answer(200, schema)
            else:
                self.answer(200, json.dumps({"schema": json.dumps(schema)}).encode())

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
