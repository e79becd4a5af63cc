"""How URLs become pyarrow's file systems: the accounts, logins and options, without a server."""

import pyarrow.fs
import pytest

from wirescan.files import object_store, store_connection
from wirescan.files.store_connection import KEYFILE_VARIABLE, connect, get_store_kind

ACCOUNT = "AZURE_STORAGE_ACCOUNT"
HOST = "acc.dfs.core.windows.net"


class FakeFileSystem:
    """Takes the options of a file system. `type_name` is pyarrow's attribute."""

    type_name = "fake"

    def __init__(self, **options):
        self.options = options

    @staticmethod
    def from_uri(url):
        return FakeFileSystem(url=url), url.partition("://")[2].rpartition("@")[2].split("/")[0]


@pytest.fixture(autouse=True)
def fake_file_systems(monkeypatch):
    for name in "AzureFileSystem", "FileSystem", "S3FileSystem":
        monkeypatch.setattr(pyarrow.fs, name, FakeFileSystem)
    for name in (
        *store_connection.AZURE_ACCOUNT_VARIABLES,
        *store_connection.AZURE_LOGIN_VARIABLES,
        KEYFILE_VARIABLE,
    ):
        monkeypatch.delenv(name, raising=False)
    store_connection._connect.cache_clear()
    yield
    store_connection._connect.cache_clear()


@pytest.mark.parametrize(
    ("root", "options", "container", "values"),
    [
        (f"abfs://c@{HOST}", "", "c", {}),
        ("abfss://c@acc.blob.core.windows.net", "", "c", {}),
        (f"abfs://c:k%2F@{HOST}", "", "c", {"account_key": "k/"}),
        (f"abfs://{HOST}", "", "", {}),
        ("abfs://acc@c", "", "c", {}),
        ("abfs://acc:k@c", "", "c", {"account_key": "k"}),
        ("az://c", "?account_name=acc&sas_token=s%3D1", "c", {"sas_token": "s=1"}),
        (
            "az://c",
            "?account_name=acc&endpoint_override=http://h:1/",
            "c",
            {
                "blob_storage_authority": "h:1",
                "blob_storage_scheme": "http",
                "dfs_storage_authority": "h:1",
                "dfs_storage_scheme": "http",
            },
        ),
        (
            "abfss://c@acc.dfs.core.chinacloudapi.cn",
            "",
            "c",
            {
                "blob_storage_authority": ".blob.core.chinacloudapi.cn",
                "dfs_storage_authority": ".dfs.core.chinacloudapi.cn",
            },
        ),
    ],
)
def test_urls_of_azure(root, options, container, values):
    file_system, name = connect(root, options)
    assert name == container
    assert file_system.options == {"account_name": "acc", **values}


def test_some_options_of_azure_need_pyarrows_url():
    file_system, name = connect("az://c", "?account_name=acc&credential_kind=anonymous")
    assert name == "c"
    assert file_system.options == {"url": f"abfs://c@{HOST}/?credential_kind=anonymous"}


@pytest.mark.parametrize(
    ("variable", "value", "option"),
    [
        ("AZURE_STORAGE_KEY", "k", {"account_key": "k"}),
        ("AZURE_STORAGE_ACCOUNT_KEY", "k", {"account_key": "k"}),
        ("AZURE_STORAGE_SAS_TOKEN", "?s=1", {"sas_token": "s=1"}),
    ],
)
def test_the_environment_has_the_key_of_its_own_account_only(monkeypatch, variable, value, option):
    monkeypatch.setenv(ACCOUNT, "acc")
    monkeypatch.setenv(variable, value)
    for root in "az://c", f"abfs://c@{HOST}", f"abfs://{HOST}":
        assert connect(root, "")[0].options == {"account_name": "acc", **option}
    other = connect("abfs://c@other.dfs.core.windows.net", "")[0]
    assert other.options == {"account_name": "other"}
    own = connect("az://c", "?account_key=own")[0]
    assert own.options == {"account_name": "acc", "account_key": "own"}


def test_a_url_without_an_account_says_what_to_set():
    with pytest.raises(ValueError, match="no file system for az://c: .* set AZURE_STORAGE_ACCOUNT"):
        object_store.get_stamp("az://c/a.log")


@pytest.mark.parametrize(
    ("options", "login", "query"),
    [
        ("", "", "retry_limit_seconds=30"),
        ("?retry_limit_seconds=5", "", "retry_limit_seconds=5"),
        ("?anonymous=true", "anonymous@", "retry_limit_seconds=30"),
        (
            "?endpoint_override=http://h:1/",
            "",
            "endpoint_override=h%3A1&retry_limit_seconds=30&scheme=http",
        ),
        (
            "?endpoint_override=h:1&scheme=http",
            "",
            "endpoint_override=h%3A1&scheme=http&retry_limit_seconds=30",
        ),
    ],
)
def test_urls_of_google(options, login, query):
    file_system, name = connect("gs://b", options)
    assert name == "b"
    start, _, found = file_system.options["url"].partition("?")
    assert start == f"gs://{login}b/"
    assert sorted(found.split("&")) == sorted(query.split("&"))


def test_the_key_of_a_service_account_is_in_the_environment_while_google_connects(
    monkeypatch, tmp_path
):
    import os

    seen = []
    monkeypatch.setattr(
        FakeFileSystem,
        "from_uri",
        staticmethod(lambda url: (seen.append((url, os.environ.get(KEYFILE_VARIABLE))), "b")),
    )
    keyfile = tmp_path / "key.json"
    keyfile.write_text("{}")
    connect("gs://b", f"?json_keyfile={keyfile}")
    assert seen == [("gs://b/?retry_limit_seconds=30", str(keyfile))]
    assert KEYFILE_VARIABLE not in os.environ
    with pytest.raises(FileNotFoundError):
        connect("gs://b", f"?json_keyfile={tmp_path / 'none'}")


def test_kinds_of_stores():
    kinds = {"s3a": "s3", "AZ": "abfs", "abfss": "abfs", "gcs": "gs", "hdfs": "hdfs"}
    assert {scheme: get_store_kind(f"{scheme}://b/a") for scheme in kinds} == kinds
