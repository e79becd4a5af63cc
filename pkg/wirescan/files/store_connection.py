"""Connections to object stores: pyarrow's file system for the bucket and the options of a URL.

pyarrow reads most options of a URL by itself. These are added, because credentials have more parts:

s3      access_key, secret_key, session_token, role_arn, session_name, external_id, anonymous,
        force_virtual_addressing
abfs    account_name, account_key, sas_token, tenant_id, client_id, client_secret,
        endpoint_override, blob_storage_authority, blob_storage_scheme, dfs_storage_authority,
        dfs_storage_scheme
gs      json_keyfile, the path of the key of a service account; anonymous

The URLs of Azure are

az://<container>/<path>
abfs://<container>@<account>.dfs.core.windows.net/<path>
abfs://<account>.dfs.core.windows.net/<container>/<path>

The schemes az, abfs and abfss are the same. The environment has the account that a URL does not
name, and the key of this account: AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or
AZURE_STORAGE_SAS_TOKEN. Without them pyarrow looks for a login of Azure's SDK.

`set_default_options` gives options for URLs that do not have them. `wirescan.spark` takes these
from Spark's configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from wirescan.frames.optional_packages import name_package

SECRETS = re.compile(r"(?s)(?<=//)[^/]*:[^/]*@|\?\w+=.*")  # credentials and options
OTHER_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "az": "abfs", "gcs": "gs"}
KEYFILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
# Google's client repeats a request that fails for 15 minutes.
GOOGLE_RETRY_SECONDS = "30"
# The names of Azure's command line, and of other programs.
AZURE_ACCOUNT_VARIABLES = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
AZURE_LOGIN_VARIABLES = {
    "AZURE_STORAGE_KEY": "account_key",
    "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
    "AZURE_STORAGE_SAS_TOKEN": "sas_token",
}
AZURE_DOMAIN = "core.windows.net"  # that of the public cloud
# Options that only pyarrow's URL has, and not its file system of Azure.
AZURE_URL_OPTIONS = {"credential_kind", "enable_tls"}
# Options that log in. A URL with one of them takes none from the defaults.
LOGINS = {
    "access_key", "secret_key", "session_token", "role_arn", "session_name", "external_id",
    "anonymous", "account_key", "sas_token", "tenant_id", "client_id", "client_secret",
    "json_keyfile", "access_token", "credential_kind",
}  # fmt: skip
FLAGS = {
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "anonymous",
    "background_writes",
    "force_virtual_addressing",
}
# Options of S3 that pyarrow does not read from a URL.
ADDED_OF_S3 = {
    "access_key", "secret_key", "session_token", "role_arn", "session_name", "external_id",
    "anonymous", "force_virtual_addressing",
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
    return OTHER_SCHEMES.get(scheme, scheme)


def connect(root: str, options: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a bucket, and the bucket's name.

    It is created once for each process, so that its connections are reused.

    root: the scheme and the bucket. options: "" or "?name=value&...".

    Raises ValueError, NotImplementedError and OSError as pyarrow does.
    """
    return _connect(root, tuple(sorted(find_options(root, options).items())))


@cache
def _connect(root: str, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    values = dict(options)
    authority = root.partition("://")[2]
    kind = get_store_kind(root)
    if kind == "s3":
        return _connect_s3(authority, values)
    if kind == "abfs":
        return _connect_azure(authority, values)
    if kind == "gs":
        return _connect_google(authority, values)
    if kind == "hdfs":
        root = f"hdfs://{values.pop('authority', authority)}"
    return _open_url(root, values)


def _import_file_systems() -> Any:
    with name_package("pyarrow", "an object store", "'wirescan[arrow]'"):
        from pyarrow import fs

    return fs


def _open_url(root: str, values: Mapping[str, str]) -> tuple[Any, str]:
    """Return the file system that pyarrow makes of a URL, and the bucket's name."""
    query = "?" + urlencode(values) if values else ""
    file_system, name = _import_file_systems().FileSystem.from_uri(f"{root}/{query}")
    return file_system, name.rstrip("/")


def _connect_s3(authority: str, values: dict[str, str]) -> tuple[Any, str]:
    if not ADDED_OF_S3 & values.keys():
        return _open_url(f"s3://{authority}", values)
    login, _, bucket = authority.rpartition("@")
    if login:
        values["access_key"], _, values["secret_key"] = map(unquote, login.partition(":"))
    return _make(_import_file_systems().S3FileSystem, _convert_flags(values)), bucket


def _connect_google(authority: str, values: dict[str, str]) -> tuple[Any, str]:
    values.setdefault("retry_limit_seconds", GOOGLE_RETRY_SECONDS)
    scheme, separator, host = values.get("endpoint_override", "").partition("://")
    if separator:
        values |= {"scheme": scheme, "endpoint_override": host.rstrip("/")}
    if _is_true(values.pop("anonymous", "")):
        authority = f"anonymous@{authority.rpartition('@')[2]}"
    keyfile = values.pop("json_keyfile", None)
    with nullcontext() if keyfile is None else _set_keyfile(keyfile):
        return _open_url(f"gs://{authority}", values)


class _AzureContainer(NamedTuple):
    """Where a container is.

    account, name: "" for one that the URL does not name. key: of the account, "" for none.
    domain: that of the cloud, such as "core.windows.net"; "" for none in the URL.
    """

    account: str
    name: str
    key: str
    domain: str


def _parse_azure(authority: str) -> _AzureContainer:
    """Return the container of <container>[:<key>]@<account>.<domain>, or of another form.

    Source: AzureOptions::FromUri of Arrow.
    """
    login, at, host = authority.rpartition("@")
    first, _, key = map(unquote, login.partition(":"))
    account, dot, domain = host.partition(".")
    if not dot:  # <account>[:<key>]@<container>, or the container alone
        return _AzureContainer(first, host, key, "")
    endpoint, _, cloud = domain.partition(".")
    return _AzureContainer(account, first, key, cloud if endpoint in ("dfs", "blob") else "")


def resolve_azure(authority: str, values: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the container of a URL of Azure, and its options with the account and the login.

    authority: of the URL, between the scheme and the path. values: its options. The container is
    "" if the path has it. The option account_name is always in the result, and what the environment
    has for this account. Raises ValueError for a URL without an account.
    """
    values = dict(values)
    container = _parse_azure(authority)
    known = next(filter(None, map(os.environ.get, AZURE_ACCOUNT_VARIABLES)), "")
    account = values.get("account_name") or container.account or known
    if not account:
        raise ValueError(
            "the URL has no account of Azure: set AZURE_STORAGE_ACCOUNT, or use "
            "abfs://<container>@<account>.dfs.core.windows.net/"
        )
    values["account_name"] = account
    if container.key:
        values["account_key"] = container.key
    elif account == known and not LOGINS & values.keys():
        for variable, option in AZURE_LOGIN_VARIABLES.items():
            if os.environ.get(variable) and not LOGINS & values.keys():
                values[option] = os.environ[variable].removeprefix("?")
    if container.domain and container.domain != AZURE_DOMAIN:
        values.setdefault("blob_storage_authority", f".blob.{container.domain}")
        values.setdefault("dfs_storage_authority", f".dfs.{container.domain}")
    return container.name, values


def _connect_azure(authority: str, options: dict[str, str]) -> tuple[Any, str]:
    container, values = resolve_azure(authority, options)
    if AZURE_URL_OPTIONS & values.keys():
        root = f"abfs://{container}@{values.pop('account_name')}.dfs.{AZURE_DOMAIN}"
        return _open_url(root, values)[0], container
    endpoint = values.pop("endpoint_override", "")
    scheme, _, host = endpoint.rpartition("://")
    if endpoint:
        for name in "blob_storage", "dfs_storage":
            values[f"{name}_authority"] = host.rstrip("/")
            values[f"{name}_scheme"] = scheme or "https"
    return _make(_import_file_systems().AzureFileSystem, values), container


def _make(file_system: Any, values: dict[str, Any]) -> Any:
    try:
        return file_system(**values)
    except TypeError as error:  # an option that it does not have
        raise ValueError(str(error).partition("() ")[2] or str(error)) from None


def _convert_flags(values: dict[str, str]) -> dict[str, Any]:
    """Return options in which flags are bool."""
    return {name: _is_true(value) if name in FLAGS else value for name, value in values.items()}


def _is_true(value: str) -> bool:
    return value.lower() in ("1", "true")


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
