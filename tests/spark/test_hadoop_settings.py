"""Settings of Hadoop become options of URLs, and are not shown."""

import pickle
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.spark.records import collect_rows, read_expected_rows
from wirescan.files.store_connection import find_options, set_default_options
from wirescan.spark import read, register
from wirescan.spark.hadoop_settings import PREFIX, HadoopSettings

ROLE = "arn:aws:iam::1:role/reader"
KEYS = {"fs.s3a.access.key": "me", "fs.s3a.secret.key": "hidden"}
LOGIN = {"access_key": "me", "secret_key": "hidden"}
HOST = "account.dfs.core.windows.net"
OAUTH = "fs.azure.account.oauth2.client"


@pytest.fixture
def defaults():
    """Forget the options that a test sets for the process."""
    yield set_default_options
    set_default_options(None)


@pytest.mark.parametrize(
    ("values", "root", "options"),
    [
        (KEYS, "s3a://bucket", LOGIN),
        (KEYS | {"fs.s3a.session.token": "t"}, "s3://b", LOGIN | {"session_token": "t"}),
        (KEYS | {"fs.s3a.bucket.b.access.key": "own"}, "s3n://b", LOGIN | {"access_key": "own"}),
        ({"fs.s3a.access.key": "me"}, "s3a://b", {}),
        (
            {"fs.s3a.endpoint": "store:9000", "fs.s3a.connection.ssl.enabled": "false"},
            "s3a://b",
            {"endpoint_override": "store:9000", "scheme": "http"},
        ),
        (
            {"fs.s3a.endpoint": "https://store", "fs.s3a.path.style.access": "false"},
            "s3a://b",
            {"endpoint_override": "https://store", "force_virtual_addressing": "true"},
        ),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "s3a://b", {"region": "eu-west-1"}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.AnonymousAWSCredentialsProvider"},
            "s3a://b",
            {"anonymous": "true"},
        ),
        (
            {
                "fs.s3a.aws.credentials.provider": "org.apache.AssumedRoleCredentialProvider",
                "fs.s3a.assumed.role.arn": ROLE,
            },
            "s3a://b",
            {"role_arn": ROLE},
        ),
        ({"fs.azure.account.key": "k"}, f"abfss://c@{HOST}", {"account_key": "k"}),
        (
            {"fs.azure.account.key": "k", f"fs.azure.account.key.{HOST}": "own"},
            f"abfs://c@{HOST}",
            {"account_key": "own"},
        ),
        (
            {
                f"{OAUTH}.id": "i",
                f"{OAUTH}.secret": "s",
                f"{OAUTH}.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
            },
            f"abfss://c@{HOST}",
            {"client_id": "i", "client_secret": "s", "tenant_id": "tenant"},
        ),
        ({"fs.azure.sas.fixed.token": "t"}, f"abfss://c@{HOST}", {"sas_token": "t"}),
        (
            {"google.cloud.auth.service.account.json.keyfile": "/key.json"},
            "gs://b",
            {"json_keyfile": "/key.json"},
        ),
        (
            {"fs.gs.storage.root.url": "http://store:4443/"},
            "gs://b",
            {"scheme": "http", "endpoint_override": "store:4443"},
        ),
        ({"fs.defaultFS": "hdfs://node:8020"}, "hdfs://", {"authority": "node:8020"}),
        ({"fs.defaultFS": "hdfs://node:8020"}, "hdfs://other:8020", {}),
        (KEYS, "file://", {}),
    ],
)
def test_options_of_settings(values, root, options):
    assert HadoopSettings(values)(root) == options


@pytest.mark.parametrize(
    ("root", "own", "options"),
    [
        ("s3a://b", "", {**LOGIN, "region": "r"}),
        ("s3a://b", "?region=own", {**LOGIN, "region": "own"}),
        ("s3a://b", "?anonymous=true", {"anonymous": "true", "region": "r"}),
        ("s3a://you:pass@b", "", {"region": "r"}),
    ],
)
def test_what_a_url_says_takes_precedence(defaults, root, own, options):
    """A URL with a login takes no part of another login."""
    defaults(HadoopSettings(KEYS | {"fs.s3a.endpoint.region": "r"}))
    assert find_options(root, own) == options


def test_settings_are_not_shown_and_reach_the_tasks():
    settings = HadoopSettings(KEYS)
    assert "hidden" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings))("s3a://b") == LOGIN


@pytest.mark.spark
@pytest.mark.parametrize("way", ["read", "source"])
def test_urls_use_the_settings_of_the_session(spark, log, defaults, capfd, way):
    from tests.support.object_store import ObjectStore

    with ObjectStore() as objects:
        objects.put_directory(Path(log), "topic-0")
        settings = {
            f"{PREFIX}fs.s3a.access.key": "wirescan",
            f"{PREFIX}fs.s3a.secret.key": "hidden",
            f"{PREFIX}fs.s3a.endpoint": objects.address,
            f"{PREFIX}fs.s3a.endpoint.region": "us-east-1",
        }
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            url = "s3a://bucket/topic-0"
            register(spark)  # the source takes the settings that the session has now
            load = spark.read.format("wirescan").load
            frame = read(spark, url) if way == "read" else load(url)
            assert collect_rows(frame) == read_expected_rows(log)
            frame.explain(extended=True)
            files = {row["_file"] for row in read(spark, url, columns=["_file"]).collect()}
        finally:
            for name in settings:
                spark.conf.unset(name)
            register(spark)
    shown = capfd.readouterr()
    assert "hidden" not in shown.out + shown.err
    assert not any(urlsplit(file).query or "@" in file for file in files)
