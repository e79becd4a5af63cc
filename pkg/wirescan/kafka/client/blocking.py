"""`Client`, whose methods block until they have a result, and the function `fetch`."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from wirescan.kafka.client.effects import Operation, Result
from wirescan.kafka.client.fetch_bounds import Bound
from wirescan.kafka.client.operations import Operations
from wirescan.kafka.client.prefetch import Parts
from wirescan.kafka.client.sockets import SocketDriver


class Client(Operations):
    """A client of a Kafka cluster with blocking methods. Several threads may use it.

    It is a context manager. `close` ends its connections, and the calls that wait for them.

        with kafka.Client("localhost:9092") as client:
            client.list_offsets({("orders", 0): "latest"})
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._driver = SocketDriver(**self._options)

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""
        return self._driver.run(operation)

    def iterate(self, operation: Operation[Any]) -> Generator[Any, None, Any]:
        """Run an operation that gives many results, and yield them."""
        return self._driver.iterate(operation)

    def fetch(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Bound = "earliest",
        stop: Bound = "latest",
        start_time: int | None = None,
        stop_time: int | None = None,
        isolation: str = "read_uncommitted",
        fetch_bytes: int = 8 << 20,
        side_by_side: int = 4,
        records: bool = True,
        errors: str = "strict",
        check: bool = True,
    ) -> Parts:
        """Return an iterator of Parts: the records of a topic, or of ranges of it.

        See `kafka.fetch` for the arguments.
        """
        job, planning = self._prepare_fetch(
            topic,
            partitions,
            start=start,
            stop=stop,
            start_time=start_time,
            stop_time=stop_time,
            isolation=isolation,
            fetch_bytes=fetch_bytes,
            side_by_side=side_by_side,
            records=records,
            errors=errors,
            check=check,
        )
        return Parts(self._driver, self.run(planning), job)

    def close(self) -> None:
        """End all connections; calls that wait for one fail. It may be called again."""
        self._driver.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def fetch(
    bootstrap: str | Sequence[str],
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Bound = "earliest",
    stop: Bound = "latest",
    start_time: int | None = None,
    stop_time: int | None = None,
    isolation: str = "read_uncommitted",
    fetch_bytes: int = 8 << 20,
    side_by_side: int = 4,
    records: bool = True,
    errors: str = "strict",
    check: bool = True,
    **options: Any,
) -> Parts:
    """Return the records of a live topic, or of ranges of it, as an iterator of Parts that ends.

        for part in kafka.fetch("localhost:9092", "orders"):
            part.partition, part.records["offset"], part.next_offset

    bootstrap: as of `Client`.
    topic: the name of the topic.
    partitions: the numbers of the partitions; None reads all.
    start, stop: an offset, "earliest" or "latest", or a mapping from partitions to these. `stop` is
        exclusive. "latest" is the end of the log at the time of the call; under "read_committed" it
        is the end of the committed records.
    start_time, stop_time: replace start and stop; milliseconds since 1970. Each means the first
        record of that time or a later one. The resulting offsets are in the result's `ranges`.
    isolation: "read_uncommitted" or "read_committed". Under "read_committed" the records of aborted
        transactions are left out. Records of control batches are always left out.
    fetch_bytes: the most bytes of one answer. A batch that is larger comes whole.
    side_by_side: how many partitions are read concurrently.
    records: False gives parts that have only batches and their bytes (`part.pieces`). They include
        control batches, unless isolation is "read_committed".
    errors, check: as of `kafka.scan` and `kafka.records`.
    options: as of `Client`. Its `limits` are also those of `kafka.scan` and `kafka.records`.

    A partition ends before `stop` where its log does. Offsets may be missing anywhere, because of
    compaction and transactions.

    Raises as `Client`, and:

        BrokerError(OFFSET_OUT_OF_RANGE)    the partition does not have the start offset, or the log
                                            of a new leader has another history (reported by
                                            brokers from 2.7 on)
        BrokerError(OFFSET_NOT_AVAILABLE)   a leader does not report offsets that were there before,
                                            and this persists
        FrameError                          bad records, as `errors` says. Under "mark" and "skip"
                                            too, where no batch says at which offset to continue
    """
    client = Client(bootstrap, **options)
    try:
        parts = client.fetch(
            topic,
            partitions=partitions,
            start=start,
            stop=stop,
            start_time=start_time,
            stop_time=stop_time,
            isolation=isolation,
            fetch_bytes=fetch_bytes,
            side_by_side=side_by_side,
            records=records,
            errors=errors,
            check=check,
        )
    except BaseException:
        client.close()
        raise
    parts.also_close = client.close
    return parts
