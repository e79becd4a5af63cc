"""A certificate authority and a broker's certificate for 127.0.0.1, made with openssl."""
import subprocess
from pathlib import Path

STORE_PASSWORD = "a store's password"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_certificates(home: Path) -> Path:
    """Make home/broker.p12, the broker's key and chain (returned), and home/authority.pem, which clients trust."""
    authority_key, authority = home / "authority.key", home / "authority.pem"
    broker_key, request, signed = home / "broker.key", home / "broker.csr", home / "broker.pem"
    extensions, store = home / "broker.ext", home / "broker.p12"
    # Strict readers of RFC 5280 (Python's, from 3.13 on) ask for a key usage and a critical basic constraint.
    openssl("req", "-x509", *NEW_KEY, "-keyout", authority_key, "-out", authority,
            "-subj", "/CN=wirescan's test authority", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", *NEW_KEY, "-keyout", broker_key, "-out", request, "-subj", "/CN=broker")
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n"
                          "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial",
            "-extfile", extensions, "-out", signed)
    openssl("pkcs12", "-export", "-inkey", broker_key, "-in", signed, "-certfile", authority, "-name", "broker",
            "-passout", f"pass:{STORE_PASSWORD}", "-out", store)
    return store


def openssl(*arguments: object) -> None:
    """Run openssl. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} ended with {done.returncode}:\n{done.stderr}")
