"""Connections to object stores: pyarrow's file system for the bucket and the options of a URL.

pyarrow reads most options of a URL by itself. These are added, because credentials have more parts:

s3      access_key, secret_key, session_token, role_arn, session_name, external_id, anonymous,
        force_virtual_addressing
abfs    account_key, sas_token, tenant_id, client_id, client_secret, blob_storage_authority,
        blob_storage_scheme, dfs_storage_authority, dfs_storage_scheme
gs      json_keyfile, the path of the key of a service account

`set_default_options` gives options for URLs that do not have them. `wirescan.spark` takes these
from Spark's configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from wirescan.frames.optional_packages import name_package

SECRETS = re.compile(r"(?s)(?<=//)[^/]*:[^/]*@|\?\w+=.*")  # credentials and options
HADOOP_NAMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "gcs": "gs"}
KEYFILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
# Options that log in. A URL with one of them takes none from the defaults.
LOGINS = {
    "access_key", "secret_key", "session_token", "role_arn", "session_name", "external_id",
    "anonymous", "account_key", "sas_token", "tenant_id", "client_id", "client_secret",
    "json_keyfile", "access_token",
}  # fmt: skip
FLAGS = {
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "anonymous",
    "background_writes",
    "force_virtual_addressing",
}
# Options that pyarrow does not read from a URL.
ADDED = {
    "s3": {
        "access_key", "secret_key", "session_token", "role_arn", "session_name", "external_id",
        "anonymous", "force_virtual_addressing",
    },
    "abfs": {
        "account_key", "sas_token", "tenant_id", "client_id", "client_secret",
        "blob_storage_authority", "blob_storage_scheme", "dfs_storage_authority",
        "dfs_storage_scheme",
    },
    "gs": {"json_keyfile"},
    "hdfs": {"authority"},
}  # fmt: skip

FindOptions = Callable[[str], Mapping[str, str]]

_default_options: FindOptions | None = None
_environment_lock = Lock()


def set_default_options(find: FindOptions | None) -> None:
    """Set the options of URLs for this process. The options that a URL has take precedence.

    find: a function of the root of a URL, such as "s3a://bucket", that returns options. It must
        be possible to pickle it. None: there are no defaults.
    """
    global _default_options
    _default_options = find


def get_default_options() -> FindOptions | None:
    """Return the last argument of `set_default_options` in this process."""
    return _default_options


def find_options(root: str, options: str) -> dict[str, str]:
    """Return the options of a URL together with the defaults for them.

    root: the scheme and the bucket. options: "" or "?name=value&...".
    """
    own = dict(parse_qsl(options.removeprefix("?"), keep_blank_values=True))
    login = root.rpartition("@")[0].partition("://")[2]
    defaults = dict(_default_options(root)) if _default_options is not None else {}
    if ":" in login or LOGINS & own.keys():
        defaults = {name: value for name, value in defaults.items() if name not in LOGINS}
    if "endpoint_override" in own:
        defaults.pop("scheme", None)
    return defaults | own


def get_store_kind(url: str) -> str:
    """Return the name of the store's kind: "s3" for s3, s3a and s3n URLs."""
    scheme = url.partition("://")[0].lower()
    return HADOOP_NAMES.get(scheme, scheme)


def connect(root: str, options: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a bucket, and the bucket's name.

    It is created once for each process, so that its connections are reused.

    root: the scheme and the bucket. options: "" or "?name=value&...".

    Raises ValueError, NotImplementedError and OSError as pyarrow does.
    """
    return _connect(root, tuple(sorted(find_options(root, options).items())))


@cache
def _connect(root: str, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    with name_package("pyarrow", "an object store", "'wirescan[arrow]'"):
        from pyarrow import fs

    values = dict(options)
    kind = get_store_kind(root)
    if not ADDED.get(kind, set()) & values.keys():
        plain = re.sub("(?i)^s3[an]://", "s3://", root)
        query = "?" + urlencode(values) if values else ""
        file_system, name = fs.FileSystem.from_uri(f"{plain}/{query}")
        return file_system, name.rstrip("/")
    authority = root.partition("://")[2]
    login, _, bucket = authority.rpartition("@")
    if kind == "s3":
        if login:
            values["access_key"], _, values["secret_key"] = map(unquote, login.partition(":"))
        return _make(fs.S3FileSystem, _convert_flags(values)), bucket
    if kind == "abfs":
        container, _, key = login.partition(":")
        if key:
            values["account_key"] = unquote(key)
        values["account_name"] = bucket.partition(".")[0]
        return _make(fs.AzureFileSystem, values), container
    if kind == "gs":
        with _set_keyfile(values.pop("json_keyfile")):
            return _make(fs.GcsFileSystem, _convert_flags(values)), bucket
    file_system, name = fs.FileSystem.from_uri(f"hdfs://{values['authority']}/")
    return file_system, name.rstrip("/")


def _make(file_system: Any, values: dict[str, Any]) -> Any:
    try:
        return file_system(**values)
    except TypeError as error:  # an option that it does not have
        raise ValueError(str(error).partition("() ")[2] or str(error)) from None


def _convert_flags(values: dict[str, str]) -> dict[str, Any]:
    """Return options in which flags are bool."""
    return {
        name: value.lower() in ("1", "true") if name in FLAGS else value
        for name, value in values.items()
    }


@contextmanager
def _set_keyfile(path: str) -> Iterator[None]:
    """Name the key of a service account in the environment, where Google's client reads it.

    The client reads it once, when it is created. Raises OSError for a file that cannot be read.
    """
    with open(path):  # the client would report the error with the first request, after retries
        pass
    with _environment_lock:
        before = os.environ.get(KEYFILE_VARIABLE)
        os.environ[KEYFILE_VARIABLE] = path
        try:
            yield
        finally:
            if before is None:
                del os.environ[KEYFILE_VARIABLE]
            else:
                os.environ[KEYFILE_VARIABLE] = before
