"""A streaming query in its own process. The test kills that process.

Arguments: directory, output, and optionally "once". With "once" the query ends by itself.
"""

import sys

from wirescan.spark import session

directory, out, *once = sys.argv[1:]
spark = session(
    "stream",
    "local[2]",
    **{
        "spark.driver.memory": "1g",
        "spark.sql.streaming.minBatchesToRetain": 1000,
    },
)
options = {"columns": "offset,key,value"} | ({} if once else {"maxBytesPerTrigger": "100k"})
frame = spark.readStream.format("wirescan").options(**options).load(directory)
query = (
    frame.writeStream.format("parquet")
    .option("checkpointLocation", out + ".checkpoint")
    .trigger(**({"availableNow": True} if once else {"processingTime": "100 milliseconds"}))
    .start(out)
)
query.awaitTermination()
