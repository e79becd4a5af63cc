"""`Parts`: an iterator over ranges of a topic, which threads read ahead of the caller."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from wirescan.kafka.client.decode import PARTS_AHEAD, FetchJob, Part
from wirescan.kafka.client.fetch_ranges import FetchRange
from wirescan.kafka.client.sockets import SocketDriver

# Seconds that `close` waits for threads. A thread that looks up a host name cannot be ended.
CLOSE_TIMEOUT = 1.0
POLL_SECONDS = 0.1  # between two looks at whether another thread has closed the Parts


class Parts(Iterator[Part]):
    """The parts of some ranges as they arrive; the parts of one partition are in order.

    The iterator ends after the last part. `close`, or leaving a `with` block, ends it earlier. The
    threads start when the first part is asked for. Each holds at most two parts ready.

    ranges: the ranges that are read: topic, partition, start, stop (exclusive).
    also_close: a function that is called at the end, or None.
    """

    def __init__(self, driver: SocketDriver, ranges: Sequence[FetchRange], job: FetchJob):
        self.ranges = tuple(ranges)
        remaining = deque(item for item in ranges if item.start < item.stop)
        count = min(job.side_by_side, len(remaining))
        self._work = _Work(driver.make_branch(), remaining, job, PARTS_AHEAD * max(count, 1))
        self._threads = [
            threading.Thread(target=self._work.run, daemon=True, name=f"kafka.fetch-{number}")
            for number in range(count)
        ]
        self._running = count
        self.also_close: Callable[[], None] | None = None
        self._started = False
        self._ended = False

    def __iter__(self) -> Parts:
        return self

    def __next__(self) -> Part:
        if not self._started:
            self._start()
        while self._running and not self._ended:
            try:
                result = self._work.parts.get(timeout=POLL_SECONDS)
            except queue.Empty:  # another thread may have closed the Parts
                continue
            if isinstance(result, Part):
                return result
            self._running -= 1
            if result is not None:
                self.close()
                raise result
        self.close()
        raise StopIteration

    def close(self) -> None:
        """End the reading and its threads, and call `also_close`. It may be called again."""
        if self._ended:
            return
        self._ended = True
        self._work.end()
        if self.also_close is not None:
            self.also_close()
        until = time.monotonic() + CLOSE_TIMEOUT
        for thread in self._threads:
            # The garbage collector may call this in one of the threads, which cannot join itself.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0))

    def _start(self) -> None:
        self._started = True
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                # The system allows no more threads: the threads that run do the work.
                del self._threads[number:]
                self._running = number
                if not number:
                    self.close()
                    raise OSError("no thread can be started") from error
                break

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_ended"):
            self.close()


class _Work:
    """The state that the threads share.

    It has no reference to the Parts, so that unused Parts are collected and closed.
    """

    def __init__(
        self, driver: SocketDriver, remaining: deque[FetchRange], job: FetchJob, max_parts: int
    ):
        self.parts: queue.Queue[Part | BaseException | None] = queue.Queue(max_parts)
        self._driver = driver
        self._remaining = remaining
        self._job = job
        self._ended = False

    def run(self) -> None:
        """Read one range after another in a thread.

        Puts parts into the queue, and at the end None or the exception that ended the thread.
        """
        end: BaseException | None = None
        try:
            while not self._ended:
                try:
                    fetch_range = self._remaining.popleft()
                except IndexError:  # no range is left
                    break
                self._read(fetch_range)
        except BaseException as error:
            end = error
        self._put(end)

    def _read(self, fetch_range: FetchRange) -> None:
        with closing(self._driver.iterate(self._job.read(fetch_range))) as answers:
            for answer in answers:
                if not self._put(self._job.decoding.make_part(answer)):
                    return

    def _put(self, result: Part | BaseException | None) -> bool:
        """Put a result into the queue; return False where the work ended before."""
        while not self._ended:
            with suppress(queue.Full):
                self.parts.put(result, timeout=POLL_SECONDS)
                return True
        return False

    def end(self) -> None:
        """End the work and the open requests: the caller takes no more parts."""
        self._ended = True
        self._driver.stop()
