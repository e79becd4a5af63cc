"""Ranges of a topic, read by threads."""
from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wirescan.kafka.client.cluster import Cluster
from wirescan.kafka.client.fetching import Question, Range, read_range
from wirescan.kafka.client.parts import AHEAD, Decoding, Part
from wirescan.kafka.client.sockets import Driver

ENDING = 1.0                # seconds that `close` waits for threads: looking up a name cannot be ended


class Parts(Iterator[Part]):
    """The parts of some ranges, as they come: those of a partition in order. Ends by itself; `close`, or leaving a
    `with` block, ends it before.

    ranges: what is read: topic, partition, start, stop (exclusive). also_close: called at the end.
    The threads begin with the first part that is asked for; each holds two parts ready at the most."""

    def __init__(self, cluster: Cluster, driver: Driver, ranges: Sequence[Range], question: Question,
                 decoding: Decoding, side_by_side: int):
        self.ranges = tuple(ranges)
        jobs = deque(one for one in ranges if one.start < one.stop)
        count = min(side_by_side, len(jobs))
        self._work = _Work(cluster, driver.branch(), jobs, question, decoding, AHEAD * max(count, 1))
        self._threads = [threading.Thread(target=self._work.run, daemon=True, name=f"kafka.fetch-{number}")
                         for number in range(count)]
        self._running = count
        self.also_close: Callable[[], None] | None = None
        self._started = self._ended = False

    def __iter__(self) -> Parts:
        return self

    def __next__(self) -> Part:
        if not self._started:
            self._start()
        while self._running and not self._ended:
            try:
                found = self._work.parts.get(timeout=0.1)
            except queue.Empty:                 # perhaps another thread has closed this
                continue
            if isinstance(found, Part):
                return found
            self._running -= 1
            if found is not None:
                self.close()
                raise found
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Ends the reading, its threads, and the client where it was made for this. May be called again."""
        if self._ended:
            return
        self._ended = True
        self._work.end()
        if self.also_close is not None:
            self.also_close()
        until = time.monotonic() + ENDING
        for thread in self._threads:
            # The current one is among them where the collector came by there.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0))

    def _start(self) -> None:
        self._started = True
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:       # the system gives no more: those that there are do the work
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
    """What the threads share. They do not know the Parts, so that these are closed when nobody holds them."""

    def __init__(self, cluster: Cluster, driver: Driver, jobs: deque[Range], question: Question, decoding: Decoding,
                 room: int):
        self.parts: queue.Queue[Part | BaseException | None] = queue.Queue(room)
        self._cluster, self._driver, self._jobs = cluster, driver, jobs
        self._question, self._decoding = question, decoding
        self._ended = False

    def run(self) -> None:
        """Reads range after range. Puts parts, and at the end None or what it failed with."""
        end: BaseException | None = None
        try:
            while not self._ended:
                try:
                    job = self._jobs.popleft()
                except IndexError:              # that was the last one
                    break
                self._read(job)
        except BaseException as error:
            end = error
        self._put(end)

    def _read(self, one: Range) -> None:
        pieces = self._driver.iterate(read_range(
            self._cluster, one, self._question, self._decoding.limits, self._decoding.errors))
        try:
            for piece in pieces:
                if not self._put(self._decoding.part(piece)):
                    return
        finally:
            pieces.close()

    def _put(self, one: Part | BaseException | None) -> bool:
        while not self._ended:
            try:
                self.parts.put(one, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def end(self) -> None:
        """Nobody takes parts any more: ends what is under way."""
        self._ended = True
        self._driver.stop()
