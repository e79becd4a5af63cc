"""The client for programs that wait."""
from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.operations import Operations
from wirescan.kafka.client.parts import Bound, plan
from wirescan.kafka.client.reading import Parts
from wirescan.kafka.client.sockets import Driver


class Client(Operations):
    """A client of a Kafka cluster, whose methods wait. May be used by several threads. A context manager: `close` ends
    its connections, and what waits for one.

        with kafka.Client("localhost:9092") as client:
            client.list_offsets({("orders", 0): "latest"})
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._driver = Driver(**self._options)

    def run(self, operation: Operation[Any]) -> Any:
        """Runs an operation: its result."""
        return self._driver.run(operation)

    def iterate(self, operation: Operation[Any]) -> Generator[Any, None, Any]:
        """Runs an operation that gives many results: these."""
        return self._driver.iterate(operation)

    def fetch(self, topic: str, *, partitions: Iterable[int] | None = None, start: Bound = "earliest",
              stop: Bound = "latest", start_time: int | None = None, stop_time: int | None = None,
              isolation: str = "read_uncommitted", fetch_bytes: int = 8 << 20, side_by_side: int = 4,
              records: bool = True, errors: str = "strict", check: bool = True) -> Parts:
        """The records of a topic, or of ranges of it: an iterator of Parts. See `kafka.fetch`."""
        question, decoding = self._reading(isolation, fetch_bytes, side_by_side, records, errors, check)
        ranges = self.run(plan(self.cluster, topic, partitions, start, stop, start_time, stop_time, isolation))
        return Parts(self.cluster, self._driver, ranges, question, decoding, side_by_side)

    def close(self) -> None:
        """Ends all connections: what waits for one fails. May be called again."""
        self._driver.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def fetch(bootstrap: str | Sequence[str], topic: str, *, partitions: Iterable[int] | None = None,
          start: Bound = "earliest", stop: Bound = "latest", start_time: int | None = None,
          stop_time: int | None = None, isolation: str = "read_uncommitted", fetch_bytes: int = 8 << 20,
          side_by_side: int = 4, records: bool = True, errors: str = "strict", check: bool = True,
          **options: Any) -> Parts:
    """The records of a live topic, or of ranges of it, as tables: an iterator of Parts, which ends by itself.

        for part in kafka.fetch("localhost:9092", "orders"):
            part.partition, part.records["offset"], part.next_offset

    partitions: their numbers; all, where none are named. start, stop: an offset, "earliest" or "latest", or a mapping
    from partitions to these; "latest" is the end as it is when this is called (under "read_committed" that of the
    committed records), and stop is exclusive. start_time, stop_time: instead of offsets; milliseconds since 1970, for
    the first record of that time or a later one. The offsets that these stand for are in the result's `ranges`.

    Records of control batches are left out; with isolation="read_committed" so are those of aborted transactions. A
    partition ends before `stop` where the log does; offsets may be missing anywhere (compaction, transactions).
    records: False gives parts with batches alone and their bytes (`part.pieces`); control batches are among them,
    unless isolation is "read_committed".
    fetch_bytes: of one answer; a batch that is larger comes whole. side_by_side: how many partitions at a time.
    errors, check, and limits among the options: as of `kafka.scan` and `kafka.records`. options: as of `Client`.

    Raises as `Client`, BrokerError(OFFSET_OUT_OF_RANGE) for a start that the partition does not have, or where a new
    leader's log has another history (brokers from 2.7 on tell), BrokerError(OFFSET_NOT_AVAILABLE) where a leader lasts
    in not knowing of offsets that were there, and FrameError for bad records as `errors` says; under "mark" and "skip"
    too where no batch tells where to go on.
    """
    client = Client(bootstrap, **options)
    try:
        found = client.fetch(topic, partitions=partitions, start=start, stop=stop, start_time=start_time,
                             stop_time=stop_time, isolation=isolation, fetch_bytes=fetch_bytes,
                             side_by_side=side_by_side, records=records, errors=errors, check=check)
    except BaseException:
        client.close()
        raise
    found.also_close = client.close
    return found
