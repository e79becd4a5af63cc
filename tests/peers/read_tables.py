"""Read tables with Spark, and write their rows as Parquet: the program of table_readers.py.

Standard input has JSON: {"settings": {...}, "queries": [[table, where, out], ...]}. Standard output
gets the version of Spark. This program imports only pyspark.
"""

import json
import sys

import pyspark
from pyspark.sql import SparkSession


def main() -> None:
    request = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[2]")
    for name, value in request["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for table, where, out in request["queries"]:
        frame = spark.table(table)
        frame = frame.where(where) if where else frame
        frame.coalesce(1).write.parquet(out)
    spark.stop()
    print(pyspark.__version__)


if __name__ == "__main__":
    main()
