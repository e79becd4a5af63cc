"""Credentials and addresses of object stores that a Spark session has for Hadoop.

URLs of wirescan take them where their own options do not say otherwise. A setting of Hadoop is
`spark.hadoop.<name>` in Spark:

URL             settings of Hadoop
s3, s3a, s3n    fs.s3a.access.key, .secret.key, .session.token, .endpoint, .endpoint.region,
                .path.style.access, .connection.ssl.enabled, .assumed.role.arn,
                .assumed.role.session.name, and fs.s3a.bucket.<bucket>.<the same>;
                fs.s3a.aws.credentials.provider, if it is AnonymousAWSCredentialsProvider or
                AssumedRoleCredentialProvider
abfs, abfss     fs.azure.account.key, fs.azure.sas.fixed.token, and
                fs.azure.account.oauth2.client.id, .secret and .endpoint, each also with
                .<account>.dfs.core.windows.net
gs              fs.gs.auth.service.account.json.keyfile, or the older
                google.cloud.auth.service.account.json.keyfile; fs.gs.storage.root.url
hdfs            fs.defaultFS, for URLs without a host, as hdfs:///logs

A session of Spark Connect has only the settings that begin with `spark.hadoop.`. Other sessions
also have those of core-site.xml and of Hadoop's credential providers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from wirescan.files.object_store import URL
from wirescan.files.store_connection import get_store_kind, set_default_options

PREFIX = "spark.hadoop."
ANONYMOUS = "AnonymousAWSCredentialsProvider"
ASSUMED_ROLE = "AssumedRoleCredentialProvider"
# Settings that are asked for by name, because core-site.xml may have them.
S3_NAMES = (
    "access.key",
    "secret.key",
    "session.token",
    "endpoint",
    "endpoint.region",
    "path.style.access",
    "connection.ssl.enabled",
    "assumed.role.arn",
    "assumed.role.session.name",
    "aws.credentials.provider",
)
KEYFILES = (
    "fs.gs.auth.service.account.json.keyfile",
    "google.cloud.auth.service.account.json.keyfile",
)
NAMES = (
    *(f"fs.s3a.{name}" for name in S3_NAMES),
    *KEYFILES,
    "fs.gs.storage.root.url",
    "fs.defaultFS",
)
SECRET_NAMES = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")
PREFIXES = ("fs.s3a.bucket.", "fs.azure.account.", "fs.azure.sas.")
TENANT = re.compile(r"https?://[^/]+/([^/]+)/oauth2/")
AMAZON = re.compile(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com")


@dataclass(frozen=True)
class HadoopSettings:
    """Settings of Hadoop by their names. They are not shown, because some are secrets."""

    values: Mapping[str, str] = field(repr=False)

    def __call__(self, root: str) -> dict[str, str]:
        """Return the options of `wirescan.files.store_connection` for a URL.

        root: the scheme and the bucket of the URL, such as "s3a://bucket".
        """
        find = _FINDERS.get(get_store_kind(root))
        return {} if find is None else find(self.values, root.partition("://")[2])


def use_session(spark: SparkSession, paths: Iterable[str]) -> None:
    """Let URLs of this process, and of the tasks that it makes, use the settings of a session.

    The process keeps them until it uses another session. Nothing changes if no path is a URL.
    """
    if any(URL.match(path) for path in paths):
        set_default_options(read_settings(spark))


def read_settings(spark: SparkSession) -> HadoopSettings:
    """Return the settings of Hadoop that a session has."""
    values = {}
    if hasattr(spark, "sparkContext"):  # a session of Spark Connect has no Java
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        for name in NAMES:
            value = _get(configuration, name)
            if value is not None:
                values[name] = value
        for prefix in PREFIXES:
            for rest in dict(configuration.getPropsWithPrefix(prefix)):
                values[prefix + rest] = configuration.get(prefix + rest)
    for name, value in spark.conf.getAll.items():
        if name.startswith(PREFIX):
            values.setdefault(name.removeprefix(PREFIX), value)
    return HadoopSettings(values)


def _get(configuration: Any, name: str) -> str | None:
    """Return a setting, a secret also from Hadoop's credential providers. None: there is none."""
    if name not in SECRET_NAMES:
        value: str | None = configuration.get(name)
        return value
    characters = configuration.getPassword(name)
    return None if characters is None else "".join(characters)


def _find_s3(values: Mapping[str, str], authority: str) -> dict[str, str]:
    bucket = authority.rpartition("@")[2]

    def get(name: str) -> str:
        own = values.get(f"fs.s3a.bucket.{bucket}.{name}")
        return (own or values.get(f"fs.s3a.{name}") or "").strip()

    options = {"region": get("endpoint.region")}
    endpoint = get("endpoint")
    amazon = AMAZON.search(endpoint)
    if amazon:
        options["region"] = options["region"] or amazon[1]
    elif endpoint and not endpoint.endswith(".amazonaws.com"):
        options["endpoint_override"] = endpoint
        if "://" not in endpoint:
            is_plain = get("connection.ssl.enabled").lower() == "false"
            options["scheme"] = "http" if is_plain else "https"
        if get("path.style.access").lower() == "false":
            options["force_virtual_addressing"] = "true"
    provider = get("aws.credentials.provider")
    if ASSUMED_ROLE in provider and get("assumed.role.arn"):
        options["role_arn"] = get("assumed.role.arn")
        options["session_name"] = get("assumed.role.session.name")
    elif provider.endswith(ANONYMOUS):
        options["anonymous"] = "true"
    elif get("access.key") and get("secret.key"):
        options["access_key"] = get("access.key")
        options["secret_key"] = get("secret.key")
        options["session_token"] = get("session.token")
    return {name: value for name, value in options.items() if value}


def _find_azure(values: Mapping[str, str], authority: str) -> dict[str, str]:
    host = authority.rpartition("@")[2]

    def get(name: str) -> str:
        return values.get(f"{name}.{host}") or values.get(name) or ""

    oauth = "fs.azure.account.oauth2.client"
    tenant = TENANT.match(get(f"{oauth}.endpoint"))
    if get(f"{oauth}.id") and get(f"{oauth}.secret") and tenant:
        return {
            "client_id": get(f"{oauth}.id"),
            "client_secret": get(f"{oauth}.secret"),
            "tenant_id": tenant[1],
        }
    if get("fs.azure.account.key"):
        return {"account_key": get("fs.azure.account.key")}
    if get("fs.azure.sas.fixed.token"):
        return {"sas_token": get("fs.azure.sas.fixed.token")}
    return {}


def _find_google(values: Mapping[str, str], authority: str) -> dict[str, str]:
    options = {}
    keyfile = next((values[name] for name in KEYFILES if values.get(name)), None)
    if keyfile:
        options["json_keyfile"] = keyfile
    scheme, _, host = values.get("fs.gs.storage.root.url", "").partition("://")
    if host and not host.startswith("storage.googleapis.com"):
        options |= {"scheme": scheme, "endpoint_override": host.rstrip("/")}
    return options


def _find_hdfs(values: Mapping[str, str], authority: str) -> dict[str, str]:
    default = values.get("fs.defaultFS", "")
    if authority or not default.startswith("hdfs://"):
        return {}
    return {"authority": default.partition("://")[2].rstrip("/")}


_FINDERS = {"s3": _find_s3, "abfs": _find_azure, "gs": _find_google, "hdfs": _find_hdfs}
