"""Real servers with the interfaces of two clouds: Azurite (Azure), and fake-gcs-server (Google).

    with Azurite() as store:
        store.put("topic/0.log", b"...")
        store.url("topic/*.log")            # with the login and the address of the server

A server has one bucket, in memory, and listens on a free port of 127.0.0.1. Needs npm and
Go >= 1.26. The first call of `install_azurite` takes half a minute, and the first one of
`build_fake_gcs` one to three minutes.
"""

import os
import shutil
import socket
from pathlib import Path
from urllib.parse import quote

from pyarrow import fs

from tests.support.bucket_files import BUCKET, BucketFiles

from .cache import make_once, run_with_retry
from .lumberjack import GO, UNOPTIMIZED, Program
from .ports import find_free_ports

HERE = Path(__file__).parent
ACCOUNT = "devstoreaccount1"
# Azurite's own key, which its documentation states.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
WRONG_KEY = "d3Jvbmc="
FAKE_GCS = "github.com/fsouza/fake-gcs-server"


def install_azurite() -> Path:
    """Return the script of Azurite's server. npm installs it at the first call."""

    def install(target: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "azurite" / name, target)
        options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        run_with_retry("npm", "ci", *options, cwd=target)

    recipe = (HERE / "azurite" / "package-lock.json").read_bytes()
    modules = make_once("azurite", recipe, install) / "node_modules"
    return modules / "azurite" / "dist" / "src" / "blob" / "main.js"


def build_fake_gcs() -> Path:
    """Return the path of fake-gcs-server. The first call builds it."""
    source = HERE / "fake-gcs"

    def build(target: Path) -> None:
        command = ["go", "build", *UNOPTIMIZED, "-o", f"{target}/", FAKE_GCS]
        run_with_retry(*command, cwd=source, env=os.environ | GO)

    recipe = b"".join((source / name).read_bytes() for name in ("go.mod", "go.sum"))
    return make_once("fake-gcs-server", recipe, build) / "fake-gcs-server"


class CloudStore(Program, BucketFiles):
    """A server on `address` that keeps its objects in memory. `options` are those of its URLs."""

    def __init__(self):
        (self.port,) = find_free_ports(1)
        self.address = f"http://127.0.0.1:{self.port}"
        super().__init__(self.make_command())

    def make_command(self) -> list[object]:
        raise NotImplementedError

    def await_ready(self) -> None:
        self.await_true(self._listens, 60)
        self.files = self.connect()
        self.files.create_dir(BUCKET)

    def connect(self) -> fs.FileSystem:
        raise NotImplementedError

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Azurite(CloudStore):
    """Azurite, the server that stands in for Azure's blob storage."""

    def make_command(self) -> list[object]:
        options = ["--inMemoryPersistence", "--silent", "--disableTelemetry"]
        # pyarrow may ask for a newer version of the interface than Azurite knows.
        options.append("--skipApiVersionCheck")
        address = ["--blobHost", "127.0.0.1", "--blobPort", self.port]
        return ["node", install_azurite(), *address, *options]

    def connect(self) -> fs.FileSystem:
        authority = f"127.0.0.1:{self.port}"
        return fs.AzureFileSystem(
            ACCOUNT,
            account_key=KEY,
            blob_storage_authority=authority,
            dfs_storage_authority=authority,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )

    def url(self, path, bucket=BUCKET, key=KEY):
        """Return the URL of a path. path: percent-encoded, or a glob."""
        login = f"account_name={ACCOUNT}&account_key={quote(key, safe='')}"
        return f"az://{bucket}/{path}?{login}&endpoint_override={self.address}"


class FakeGcs(CloudStore):
    """fake-gcs-server, which stands in for Google Cloud Storage. It verifies no login."""

    def make_command(self) -> list[object]:
        options = {
            "backend": "memory",
            "scheme": "http",
            "host": "127.0.0.1",
            "port": self.port,
            "public-host": f"127.0.0.1:{self.port}",
            "external-url": self.address,
            "log-level": "error",
        }
        flags = [part for name, value in options.items() for part in (f"-{name}", value)]
        return [build_fake_gcs(), *flags]

    def connect(self) -> fs.FileSystem:
        authority = f"127.0.0.1:{self.port}"
        return fs.GcsFileSystem(
            anonymous=True, scheme="http", endpoint_override=authority, project_id="wirescan"
        )

    def url(self, path, bucket=BUCKET):
        """Return the URL of a path. path: percent-encoded, or a glob."""
        return f"gs://{bucket}/{path}?anonymous=true&endpoint_override={self.address}"
