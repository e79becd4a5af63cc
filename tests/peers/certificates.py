"""A certificate authority and a broker's certificate for 127.0.0.1, made with the keytool that every JDK has."""
import shutil
import subprocess
from os import environ
from pathlib import Path

STORE_PASSWORD = "a store's password"


def make_certificates(home: Path) -> Path:
    """Make home/broker.p12, the broker's key and chain (returned), and home/authority.pem, which clients trust."""
    store = ["-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
    authority = ["-keystore", home / "authority.p12", *store, "-alias", "authority"]
    broker = ["-keystore", home / "broker.p12", *store, "-alias", "broker"]
    request, signed = home / "broker.csr", home / "broker.pem"

    # what a strict reader of RFC 5280 (Python's, from 3.13 on) asks of an authority
    keytool("-genkeypair", *authority, "-keyalg", "EC", "-dname", "CN=wirescan's test authority",
            "-ext", "BasicConstraints:critical=ca:true", "-ext", "KeyUsage:critical=keyCertSign")
    keytool("-exportcert", *authority, "-rfc", "-file", home / "authority.pem")
    keytool("-genkeypair", *broker, "-keyalg", "EC", "-dname", "CN=broker")
    keytool("-certreq", *broker, "-file", request)
    keytool("-gencert", *authority, "-rfc", "-infile", request, "-outfile", signed,
            "-ext", "SubjectAlternativeName=ip:127.0.0.1,dns:localhost")
    keytool("-importcert", "-keystore", home / "broker.p12", *store, "-alias", "authority", "-noprompt",
            "-file", home / "authority.pem")
    keytool("-importcert", *broker, "-file", signed)
    return home / "broker.p12"


def keytool(*arguments: object) -> None:
    home = environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "keytool")) if home else shutil.which("keytool")
    subprocess.run([command, *map(str, arguments)], check=True, capture_output=True, timeout=60)
