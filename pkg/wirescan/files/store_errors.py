"""Errors of object stores, as errors of a file system: one line that says what to do.

Each names the store, the fault, what to set, and the URL without credentials and options.

fault                                            error
the credentials are refused, or are missing      PermissionError
the credentials do not allow the request         PermissionError
there is no such bucket or object                FileNotFoundError
the store cannot be reached                      ConnectionError
anything else                                    OSError
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from wirescan.files.store_connection import SECRETS, get_store_kind

# Texts in the errors of stores, by their meaning.
REFUSED = re.compile(
    "INVALID_ACCESS_KEY|InvalidAccessKey|SIGNATURE_DOES_NOT|SignatureDoesNot|EXPIRED_TOKEN|"
    "ExpiredToken|INVALID_CLIENT_TOKEN|InvalidToken|UNRECOGNIZED_CLIENT|AuthenticationFailed|"
    "HTTP status 401|Unauthenticated|UNAUTHENTICATED|invalid_client|AADSTS|"
    "failed to authenticate"
)
# No login was found. Google's and Azure's clients ask servers of their own for one, so their errors
# are those of a network.
NO_LOGIN = re.compile("OAuth2 access token|AuthenticationException")
DENIED = re.compile(
    "ACCESS_DENIED|AccessDenied|HTTP status 403|Permission|PERMISSION|Authorization"
)
NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound")
MISSING = re.compile(r"NO_SUCH_|NOT_FOUND|HTTP status 404|NotFound|No such file or directory")
UNREACHABLE = re.compile(
    r"NETWORK_CONNECTION|curlCode: (?:6|7|28|35|60)\b|[Cc]ould ?n[o']t (?:connect|resolve)|"
    r"CURL error|Connection refused|UNAVAILABLE|Fail to get a new connection|"
    r"operation timed out"
)
CODE = re.compile(r"AWS Error ([A-Z_]+)|(?:ErrorCode: |Azure Error: \[)(\w+)")
OPERATION = re.compile(r"during (\w+) operation")
NOISE = re.compile(r"(?: \(Request ID: [^)]*\)| Detail: \[.*|\x1b\[\d+m|\s+)+")
# What Google's client, Azure's and Amazon's say of the network.
DETAIL = re.compile(
    r"CURL error \[\d+\]=(.*?) error_info=|Azure Error: \[\] (.*)|.*(?:Details|curlCode): (.*)"
)
# Values of credentials that a message could quote: pairs in queries, and signatures.
QUOTED = re.compile(r"(?i)((?:secret|token|signature|sig|password|key)\w*[=:]\s*)[^\s&,;)'\"]+")
LONGEST_DETAIL = 200


class _Store(NamedTuple):
    """How messages name a store, and what sets its credentials and its address."""

    name: str
    login: str
    address: str


STORES = {
    "s3": _Store(
        "S3",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or fs.s3a.access.key of Spark",
        "endpoint_override of the URL, AWS_ENDPOINT_URL, or fs.s3a.endpoint of Spark",
    ),
    "abfs": _Store(
        "Azure",
        "AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or fs.azure.account.key of Spark",
        "the account in the URL, or its endpoint_override",
    ),
    "gs": _Store(
        "Google Cloud Storage",
        "GOOGLE_APPLICATION_CREDENTIALS, or fs.gs.auth.service.account.json.keyfile of Spark",
        "endpoint_override of the URL",
    ),
    "hdfs": _Store(
        "HDFS",
        "HADOOP_USER_NAME",
        "the host of the URL, or fs.defaultFS of Spark",
    ),
}


def redact_url(url: str) -> str:
    """Return a URL without credentials and options, for messages."""
    return SECRETS.sub("", url)


def convert_error(error: OSError, url: str) -> OSError:
    """Return the error of a file system for an error of a store.

    url: what was read or written.
    """
    if error.filename is not None and error.filename == redact_url(url):
        return error  # it is converted already
    text = NOISE.sub(" ", error.strerror or str(error)).strip()
    shown = redact_url(url)
    kind = get_store_kind(url)
    store = STORES.get(kind, _Store(kind, "the credentials", "the URL"))
    request = _describe_request(text)
    if NO_LOGIN.search(text) and not REFUSED.search(text):
        reason = f"{store.name}: there are no valid credentials; set {store.login}"
        return PermissionError(errno.EACCES, reason, shown)
    if UNREACHABLE.search(text):
        detail = _find_detail(text)
        return ConnectionError(
            errno.ECONNREFUSED, f"{store.name}: {detail}; check {store.address}", shown
        )
    if REFUSED.search(text):
        reason = f"{store.name}: the credentials are refused{request}; set {store.login}"
        return PermissionError(errno.EACCES, reason, shown)
    if DENIED.search(text):
        reason = (
            f"{store.name}: access is denied{request}; the owner of the credentials needs this "
            f"permission, or set others: {store.login}"
        )
        return PermissionError(errno.EACCES, reason, shown)
    if NO_BUCKET.search(text):
        return make_no_bucket_error(url)
    if isinstance(error, FileNotFoundError) or MISSING.search(text):
        return FileNotFoundError(errno.ENOENT, f"{store.name}: no such object", shown)
    return OSError(error.errno or errno.EIO, f"{store.name}: {_redact(text)}", shown)


def make_no_bucket_error(url: str) -> FileNotFoundError:
    """Return the error for a bucket that does not exist."""
    kind = get_store_kind(url)
    store = STORES.get(kind, _Store(kind, "", "the URL"))
    reason = f"{store.name}: no such bucket; create it, or check its name and {store.address}"
    return FileNotFoundError(errno.ENOENT, reason, redact_url(url))


def _describe_request(text: str) -> str:
    """Return the store's own code and operation, for a message, as " (CODE in Operation)"."""
    code = CODE.search(text)
    operation = OPERATION.search(text)
    parts = [code[1] or code[2]] if code and "UNKNOWN" not in code[0] else []
    if operation:
        parts.append(f"in {operation[1]}")
    return f" ({' '.join(parts)})" if parts else ""


def _find_detail(text: str) -> str:
    """Return what a network error says about the connection."""
    detail = DETAIL.search(text)
    return _redact(detail[detail.lastindex or 0] if detail else text)


def _redact(text: str) -> str:
    """Return a store's text without credentials that it may quote, and not too long."""
    text = QUOTED.sub(r"\1***", SECRETS.sub("", text))
    return text if len(text) <= LONGEST_DETAIL else text[:LONGEST_DETAIL] + "..."
