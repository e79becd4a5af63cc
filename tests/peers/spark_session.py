"""The Spark session of the tests with real programs, with Spark's own Kafka source and Avro.

A process has one Java machine, and its jars cannot change. Files of this group may run in one
process, so all of them take this session.
"""

import os
from collections.abc import Iterator
from unittest.mock import patch

from .broker import fetch_jars


def run_session() -> Iterator:
    """Yield the session, and stop it afterwards: the body of a fixture of the scope `session`."""
    from tests.spark.home import use_quick_spark
    from wirescan.spark import session

    jars = ",".join(map(str, sorted(fetch_jars("spark").glob("*.jar"))))
    settings = {"spark.jars": jars, "spark.sql.shuffle.partitions": 2}
    with patch.dict(os.environ):  # other tests of the process need no SPARK_HOME
        use_quick_spark()
        spark = session("tests", "local[2,2]", **settings)
        yield spark
        spark.stop()
