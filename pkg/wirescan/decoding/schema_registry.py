"""Schemas by their ids, of a server or in a directory, and Confluent's header with such an id.

A payload after Confluent's header names its schema by an id of 4 bytes. `SchemaRegistry` asks the
server's REST interface, `GET /schemas/ids/ID`, or reads the file ID.avsc of a directory. It keeps
what it found. Schemas that refer to others are completed with them: see `avro_references.py`.
`protobuf_registry.py` does the same for schemas of Protobuf.

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
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.decoding.avro_references import include_references
from wirescan.decoding.decoder import PayloadBytes, read_payloads

HEADER = 5  # bytes of Confluent's header
NO_HEADER = "it does not begin with Confluent's header"
MAX_SCHEMA_BYTES = 1 << 20
# Ids come from payloads, so the number of requests for ids that do not exist is bounded.
MAX_UNKNOWN = 100
MAX_SCHEMAS = 10_000
MOST_REFERENCES = 100  # other schemas that one schema refers to
LARGEST_ID = 2**31 - 1  # that registries give
SECONDS = 10.0  # for each step of a request
FOUND = 200
NOT_FOUND = 404
# The error codes of registries have five digits, which begin with those of the status.
NOT_FOUND_CODES = range(40400, 40500)
REFUSED_USER = (
    ": give the user in the URL, https://user:password@host, or in WIRESCAN_REGISTRY_USER and "
    "WIRESCAN_REGISTRY_PASSWORD"
)
# What to do about a status.
HINTS = {
    401: REFUSED_USER,
    403: REFUSED_USER,
    NOT_FOUND: ": it is no answer of a registry; the URL must have the path of its interface, "
    "such as /apis/ccompat/v7 of Apicurio Registry",
}


class FoundSchema(NamedTuple):
    """A schema of a registry.

    Attributes:
        text: the schema, or None.
        reason: why there is none.
    """

    text: str | None
    reason: str = ""


class StatusError(ConnectionError):
    """A registry answered a request with a status that is an error.

    Attributes:
        status: the number of the status.
    """

    def __init__(self, message: str, status: int = 0):  # without it, pickle cannot copy the error
        super().__init__(message)
        self.status = status


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

    def save(self, numbers: Iterable[int], directory: str) -> None:
        """Write the schemas with these ids into a directory that `SchemaRegistry` reads.

        Raises ValueError for an id without a usable schema, and OSError as `find` and for files.
        """
        os.makedirs(directory, exist_ok=True)
        for number in numbers:
            found = self.find(number)
            if found.text is None:
                raise ValueError(found.reason)
            with open(os.path.join(directory, f"{number}{self._extension}"), "wb") as file:
                file.write(self._write_content(found.text))

    def _read_file(self, number: int) -> FoundSchema:
        path = os.path.join(self._directory, f"{number}{self._extension}")
        if not os.path.exists(path):
            return FoundSchema(None, f"the registry has no schema {number}")
        if not os.path.isfile(path):  # a named pipe would wait for its writer
            return FoundSchema(None, f"schema {number} of the registry: it is no regular file")
        with open(path, "rb") as file:
            raw = file.read(MAX_SCHEMA_BYTES + 1)
        return _make_schema(number, lambda: self._read_content(raw))

    def _request(self, number: int) -> FoundSchema:
        try:
            answer = self._ask(f"/schemas/ids/{number}")
        except ValueError as error:
            return FoundSchema(None, f"schema {number} of the registry: {error}")
        if answer is None:
            return FoundSchema(None, f"the registry has no schema {number}")
        return _make_schema(number, lambda: self._read_answer(answer))

    def _read_content(self, raw: bytes) -> str:
        """Return the schema in the content of a file. Raises ValueError for other content."""
        return raw.decode()

    def _write_content(self, text: str) -> bytes:
        """Return the content of a file with a schema."""
        return text.encode()

    def _read_answer(self, answer: dict[str, Any]) -> str:
        """Return the schema in the server's answer. Raises ValueError for another answer."""
        others = self._fetch_references(answer)
        schema: str = answer["schema"]
        return include_references(schema, list(others.values())) if others else schema

    def _fetch_references(self, answer: dict[str, Any]) -> dict[str, str]:
        """Return the schemas that an answer refers to, and those that they refer to, by name.

        A schema comes after those that it refers to.
        """
        schemas: dict[str, str] = {}
        self._add_references(answer, schemas, set())
        return schemas

    def _add_references(
        self, answer: dict[str, Any], schemas: dict[str, str], begun: set[str]
    ) -> None:
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise ValueError("the references are no list")
        for reference in references:
            name, subject, version = _read_reference(reference)
            if name in begun:  # its own references may name it again
                continue
            if len(begun) >= MOST_REFERENCES:
                raise ValueError(f"it refers to more than {MOST_REFERENCES} schemas")
            begun.add(name)
            other = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if other is None:
                raise ValueError(f"the registry has no version {version} of {subject}")
            self._add_references(other, schemas, begun)
            schemas[name] = other["schema"]

    def _ask(self, path: str) -> dict[str, Any] | None:
        """Return the server's answer, which has a schema; None if the server does not have it.

        Raises OSError as `_get`, and ValueError for another answer.
        """
        raw = self._get(path)
        return None if raw is None else parse_answer(raw, self._language)

    def _get(self, path: str, query: str = "") -> bytes | None:
        """Return the server's answer; None if the server does not have it.

        Raises OSError if the server cannot be asked, and StatusError if it refuses to answer.
        """
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
                target = urlunsplit(("", "", path, query, ""))
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
        if response.status == FOUND:
            return raw
        if response.status == NOT_FOUND and _is_error_of_registry(raw):
            return None
        reason = f"{where}: status {response.status} for {path}"
        raise StatusError(reason + HINTS.get(response.status, ""), response.status)

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
    try:
        answer = json.loads(raw.decode())
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise ValueError("the answer has no schema")
    if (answer.get("schemaType") or "AVRO") != language.upper():
        raise ValueError(f"it is not {'an' if language == 'Avro' else 'a'} {language} schema")
    return answer


def _read_reference(reference: Any) -> tuple[str, str, int]:
    """Return name, subject and version. Raises ValueError for another reference."""
    if isinstance(reference, dict):
        name, subject, version = (reference.get(key) for key in ("name", "subject", "version"))
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return name, subject, version
    raise ValueError("a reference has no name, subject and version")


def _make_schema(number: int, read: Callable[[], str]) -> FoundSchema:
    """Return the schema that a function reads, or why it is refused."""
    try:
        text = read()
        if len(text.encode(errors="surrogatepass")) > MAX_SCHEMA_BYTES:
            raise ValueError(f"it has more than {MAX_SCHEMA_BYTES:,} bytes")
        return FoundSchema(text)
    except RecursionError:
        return FoundSchema(None, f"schema {number} of the registry: it is nested too deeply")
    except ValueError as error:
        return FoundSchema(None, f"schema {number} of the registry: {error}")


def _is_error_of_registry(raw: bytes) -> bool:
    """Return whether the body of status 404 says that a schema, subject or version is missing.

    A server that has no registry under the path of the URL answers with another body.
    """
    try:
        answer = json.loads(raw.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("error_code") in NOT_FOUND_CODES


def read_ids(payloads: pa.Array) -> np.ndarray:
    """Return the schema ids in Confluent's headers, as int64; -1 without a header, or for null.

    A header may have ids that no registry gives.
    """
    return _find_ids(read_payloads(payloads))


def _find_ids(payloads: PayloadBytes) -> np.ndarray:
    data, starts, stops, is_valid = payloads
    ids = np.full(len(starts), -1, np.int64)
    rows = np.flatnonzero(is_valid & (stops - starts >= HEADER))
    rows = rows[data[starts[rows]] == 0]
    if len(rows):
        words = np.ndarray(len(data) - 3, ">u4", data, strides=(1,))
        ids[rows] = words[starts[rows] + 1]
    return ids


def strip_headers(payloads: pa.Array) -> pa.Array:
    """Return the payloads after Confluent's headers, as large_binary; null without a header."""
    read = read_payloads(payloads)
    has_header = _find_ids(read) >= 0
    # Each payload is two strings: the header, and the rest, which is taken.
    count = len(has_header)
    offsets = np.zeros(2 * count + 1, np.int64)
    offsets[:-1:2] = read.starts
    offsets[1::2] = np.minimum(read.starts + HEADER, read.stops)
    if count:
        offsets[-1] = read.stops[-1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(read.data)]
    parts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * count, buffers)
    return parts.take(pa.array(np.arange(1, 2 * count, 2), mask=~has_header))
