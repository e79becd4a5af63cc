"""Schemas by their ids: those of a server, and those in a directory.

A payload after Confluent's header names its schema by an id of 4 bytes. `SchemaRegistry` asks the
server's REST interface, `GET /schemas/ids/ID`, or reads the file ID.avsc of a directory. It keeps
what it found. `protobuf_registry.py` does the same for schemas of Protobuf.

Source: docs.confluent.io, "Schema Registry API Reference" and "Wire format".
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa

from wirescan.decoding.decoder import read_payloads

MAX_SCHEMA_BYTES = 1 << 20
# Ids come from payloads, so the number of requests for ids that do not exist is bounded.
MAX_UNKNOWN = 100
MAX_SCHEMAS = 10_000
LARGEST_ID = 2**31 - 1  # that registries give
SECONDS = 10.0  # for each step of a request
NOT_FOUND = 404


class FoundSchema(NamedTuple):
    """A schema of a registry.

    Attributes:
        text: the schema, or None.
        reason: why there is none.
    """

    text: str | None
    reason: str = ""


class SchemaRegistry:
    """The schemas of a server or directory: SchemaRegistry("http://127.0.0.1:8081").

    location: a URL with http or https, in which `user:password@` may be; or a directory of files
        ID.avsc. The environment variables WIRESCAN_REGISTRY_USER and WIRESCAN_REGISTRY_PASSWORD
        give a user too, which then is not in the command.
    seconds: the time for each step of a request: the connection, and each read. An answer may take
        three times as long.

    Raises ValueError for another location, and NotADirectoryError or FileNotFoundError for a
    directory that does not exist.
    """

    _language = "Avro"
    _extension = ".avsc"
    _query = ""

    def __init__(self, location: str, *, seconds: float = SECONDS):
        self._seconds = seconds
        self._found: dict[int, FoundSchema] = {}
        self._unknown = 0
        self._lock = threading.Lock()
        self._url: SplitResult | None = None
        self._directory = location
        if re.match("[a-z]+://", location):
            self._url = urlsplit(location)
            # `port` raises ValueError for a bad one.
            has_host = self._url.hostname and self._url.port != 0
            if self._url.scheme not in ("http", "https") or not has_host:
                raise ValueError("a registry is http://..., https://... or a directory")
        elif not os.path.isdir(location):
            error = NotADirectoryError if os.path.exists(location) else FileNotFoundError
            raise error(2, "no such directory", location)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def find(self, number: int) -> FoundSchema:
        """Return the schema with an id.

        Raises OSError if the server cannot be asked or refuses the user: the payloads are not the
        reason then.
        """
        if number > LARGEST_ID:
            return FoundSchema(None, f"the registry has no schema {number}")
        with self._lock:
            found = self._found.get(number)
            if found is not None:
                return found
            if self._unknown >= MAX_UNKNOWN or len(self._found) >= MAX_SCHEMAS:
                return FoundSchema(None, "the registry was asked for too many unknown schemas")
            found = self._read_file(number) if self._url is None else self._request(number)
            self._unknown += found.text is None
            self._found[number] = found
            return found

    def _read_file(self, number: int) -> FoundSchema:
        path = os.path.join(self._directory, f"{number}{self._extension}")
        if not os.path.exists(path):
            return FoundSchema(None, f"the registry has no schema {number}")
        if not os.path.isfile(path):  # a named pipe would wait for its writer
            return FoundSchema(None, f"schema {number} of the registry: it is no regular file")
        with open(path, "rb") as file:
            raw = file.read(MAX_SCHEMA_BYTES + 1)
        return _decode_schema(number, raw, self._read_content)

    def _request(self, number: int) -> FoundSchema:
        raw = self._get(f"/schemas/ids/{number}")
        if raw is None:
            return FoundSchema(None, f"the registry has no schema {number}")
        return _decode_schema(number, raw, self._read_answer)

    def _read_content(self, raw: bytes) -> str:
        """Return the schema in the content of a file. Raises ValueError for other content."""
        return raw.decode()

    def _read_answer(self, raw: bytes) -> str:
        """Return the schema in the server's answer. Raises ValueError for another answer."""
        answer = parse_answer(raw, self._language)
        if answer.get("references"):
            raise ValueError("it refers to other schemas")
        schema: str = answer["schema"]
        return schema

    def _get(self, path: str) -> bytes | None:
        """Return the server's answer; None if the server does not have it. Raises OSError."""
        assert self._url is not None and self._url.hostname is not None
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        host = self._url.hostname
        where = f"schema registry {host}"
        path = f"{self._url.path.rstrip('/')}{path}"
        deadline = time.monotonic() + 3 * self._seconds
        try:
            connection = kind(host, self._url.port, timeout=self._seconds)
            # Each byte of a slow answer restarts the timeout of the socket.
            timer = threading.Timer(3 * self._seconds, _interrupt, [connection])
            timer.daemon = True
            timer.start()
            try:
                target = urlunsplit(("", "", path, self._query, ""))
                connection.request("GET", target, headers=self._headers)
                response = connection.getresponse()
                if time.monotonic() > deadline:
                    raise TimeoutError("the answer takes too long")
                raw = _read_body(response, deadline)
            finally:
                timer.cancel()
                connection.close()
        except HTTPException as error:
            raise ConnectionError(f"{where}: no HTTP: {type(error).__name__}") from None
        except OSError as error:
            raise ConnectionError(f"{where}: {error.strerror or error}") from None
        if response.status == NOT_FOUND:
            return None
        if response.status != 200:
            raise ConnectionError(f"{where}: status {response.status} for {path}")
        return raw

    @property
    def _headers(self) -> dict[str, str]:
        assert self._url is not None
        headers = {"Accept": "application/vnd.schemaregistry.v1+json", "Connection": "close"}
        user = os.environ.get("WIRESCAN_REGISTRY_USER")
        password = os.environ.get("WIRESCAN_REGISTRY_PASSWORD", "")
        if self._url.username is not None:
            user = unquote(self._url.username)
            password = unquote(self._url.password or "")
        if user is not None:
            credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {credentials}"
        return headers


def _interrupt(connection: HTTPConnection) -> None:
    """End the wait of another thread for the answer of a server."""
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _read_body(response: HTTPResponse, deadline: float) -> bytes:
    """Return an answer, of at most twice MAX_SCHEMA_BYTES. Raises TimeoutError after `deadline`."""
    raw = b""
    while len(raw) <= 2 * MAX_SCHEMA_BYTES:
        piece = response.read1(1 << 16)
        if not piece:
            break
        raw += piece
        if time.monotonic() > deadline:
            raise TimeoutError("the answer takes too long")
    return raw


def parse_answer(raw: bytes, language: str) -> dict[str, Any]:
    """Return the server's answer, which has a schema. Raises ValueError for another answer.

    language: that of the schema, "Avro" or "Protobuf".
    """
    answer = json.loads(raw.decode())
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise ValueError("the answer has no schema")
    if answer.get("schemaType", "AVRO") != language.upper():
        raise ValueError(f"it is not {'an' if language == 'Avro' else 'a'} {language} schema")
    return answer


def _decode_schema(number: int, raw: bytes, read: Callable[[bytes], str]) -> FoundSchema:
    """Return the schema in bytes, or why they are refused."""
    try:
        text = read(raw)
        if len(text.encode(errors="surrogatepass")) > MAX_SCHEMA_BYTES:
            raise ValueError(f"it has more than {MAX_SCHEMA_BYTES:,} bytes")
        return FoundSchema(text)
    except RecursionError:
        return FoundSchema(None, f"schema {number} of the registry: it is nested too deeply")
    except ValueError as error:
        return FoundSchema(None, f"schema {number} of the registry: {error}")


def read_ids(payloads: pa.Array) -> np.ndarray:
    """Return the schema ids in Confluent's headers, as int64; -1 without a header, or for null.

    A header may have ids that no registry gives.
    """
    data, starts, stops, is_valid = read_payloads(payloads)
    ids = np.full(len(payloads), -1, np.int64)
    rows = np.flatnonzero(is_valid & (stops - starts >= 5))
    rows = rows[data[starts[rows]] == 0]
    if len(rows):
        words = np.ndarray(len(data) - 3, ">u4", data, strides=(1,))
        ids[rows] = words[starts[rows] + 1]
    return ids
