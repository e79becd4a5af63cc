"""The Spark session of the tests with real programs, with Spark's own Kafka source and Avro.

A process has one Java machine, and its jars cannot change. Files of this group may run in one
process, so all of them take this session.
"""

from collections.abc import Iterator

from .broker import fetch_jars


def run_session() -> Iterator:
    """Yield the session, and stop it afterwards: the body of a fixture of the scope `session`."""
    from tests.spark.records import JAVA_OPTIONS
    from wirescan.spark import session

    jars = ",".join(map(str, sorted(fetch_jars("spark").glob("*.jar"))))
    settings = {
        "spark.jars": jars,
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    spark = session("tests", "local[2,2]", **settings)
    yield spark
    spark.stop()
