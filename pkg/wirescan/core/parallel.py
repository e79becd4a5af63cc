"""Threads for work that runs without the GIL.

`choose_workers` says how many threads a call uses, and `choose_threads` how many it uses for so
many bytes. `cut_evenly` cuts their work. `FixedWorkers` sets the number for all calls in a block.
`run_each` runs functions on the threads, `map_in_order` runs one function for many items, and
`map_ahead` runs it for the next item while the caller uses a result. The threads are shared by all
calls of the process, and start when they are needed first.

A function on one of these threads never waits for another one of them that has not begun: there,
`choose_workers` returns 1, and `run_each` runs its functions one after another.
"""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, Token
from threading import Lock, local
from typing import Generic, SupportsIndex, TypeVar

import numpy as np

__all__ = [
    "WORKERS_VARIABLE",
    "choose_threads",
    "choose_workers",
    "cut_evenly",
    "map_ahead",
    "map_in_order",
    "run_each",
    "FixedWorkers",
]

WORKERS_VARIABLE = "WIRESCAN_WORKERS"
"""Environment variable: the largest number of threads where a call does not state one."""

Item = TypeVar("Item")
Result = TypeVar("Result")

# Bytes to parse, which take one thread about half a millisecond. A smaller share is not worth a
# thread.
LEAST_SHARE = 8 << 20

_MAX_THREADS = 64
_stated: ContextVar[int | None] = ContextVar("wirescan_workers", default=None)
_thread = local()  # its attribute `is_ours` is set on the threads of the executor
_lock = Lock()
_executor: ThreadPoolExecutor | None = None
_forks = 0  # between the first process and this one


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1  # from Python 3.13 on
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_workers(workers: SupportsIndex | None = None) -> int:
    """Return the number of threads for a call.

    Args:
        workers: the number that the caller asked for. None, the default, means the cores that this
            process may use, but at most the number in the environment variable WIRESCAN_WORKERS.
            The number of an enclosing `FixedWorkers` block takes the place of None.

    Raises:
        TypeError: `workers` is not an integer.
        ValueError: `workers` or the variable is not a number of at least 1.
    """
    if workers is not None:
        number = operator.index(workers)
        if number < 1:
            raise ValueError(f"workers={number}: at least 1 is needed, or None for all cores")
        return number
    if _is_on_our_thread():
        return 1
    stated = _stated.get()
    if stated is not None:
        return stated
    text = os.environ.get(WORKERS_VARIABLE, "").strip()
    if not text:
        return count_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"the environment variable {WORKERS_VARIABLE} is {text!r}, not a number of at least 1"
        )
    return min(int(text), count_cores())


class FixedWorkers:
    """Set the number of threads for the calls of this thread in a `with` block.

    Args:
        workers: the number for calls that state none. None: the number does not change.

    Raises:
        TypeError, ValueError: as `choose_workers`.
    """

    __slots__ = ("_number", "_token")

    def __init__(self, workers: SupportsIndex | None):
        self._number = None if workers is None else choose_workers(workers)
        self._token: Token[int | None] | None = None

    def __enter__(self) -> None:
        if self._number is not None:
            self._token = _stated.set(self._number)

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _stated.reset(self._token)
            self._token = None


def choose_threads(size: int, least: int = LEAST_SHARE) -> int:
    """Return the number of threads for work on so many bytes.

    Args:
        size: bytes that are read.
        least: bytes of the smallest share that is worth a thread. It does not matter where an
            enclosing `FixedWorkers` states the number.

    Raises:
        ValueError: the environment variable WIRESCAN_WORKERS is wrong, and there are enough bytes
            for several threads.
    """
    stated = _stated.get()
    if stated == 1 or (stated is None and size < 2 * least):
        return 1  # the usual results, without another call
    return choose_workers() if stated is not None else min(choose_workers(), size // least)


def cut_evenly(sizes: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Return (start, stop) of at most `most` contiguous shares with about as many bytes each.

    Args:
        sizes: int64 array, the bytes of each part; there is at least one.
        most: the number of shares, unless parts are empty or fewer.
    """
    ends = np.cumsum(sizes)
    most = min(most, len(sizes))
    targets = ends[-1] * np.arange(1, most) // most
    found = np.searchsorted(ends, targets, side="right")
    # The last parts may be empty; then no part begins at or after a target.
    starts = sorted({0, *found[found < len(sizes)].tolist()})
    return list(zip(starts, [*starts[1:], len(sizes)]))


def run_each(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run functions at the same time, and return their results in order.

    The calling thread runs the first function. All functions have ended when this function returns
    or raises.

    Raises:
        BaseException: what the first of the functions that failed has raised.
    """
    if _is_on_our_thread():
        return [function() for function in functions]
    runners: _Runners[Callable[[], Result], Result] = _Runners(_call, len(functions))
    futures: list[Future[Result]] = []
    try:
        for function in functions[1:]:
            futures.append(runners.submit(function))
        results = [functions[0]()]
    finally:
        _wait_for_all(futures)
    return results + [future.result() for future in futures]


def _wait_for_all(futures: Sequence[Future[Result]]) -> None:
    """Wait until all functions have ended, also if signal handlers raise meanwhile.

    The functions use memory of the caller, who frees it after an error.
    """
    interruption: BaseException | None = None
    while not all(future.done() for future in futures):
        try:
            wait(futures)
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption


def _call(function: Callable[[], Result]) -> Result:
    return function()


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    *,
    begins_slowly: bool = False,
) -> Iterator[Result]:
    """Yield the results of a function for some items, in their order.

    Args:
        function: runs on several threads.
        items: the calling thread iterates over them, a few items ahead of the results. What the
            iteration raises is raised after the results of the items before it.
        workers: how many calls run at the same time, at most 64. With 1, the calling thread makes
            them.
        begins_slowly: the first result is yielded before the second call begins, and each further
            one allows one more call ahead. For costly calls whose results may not all be needed.

    Raises:
        BaseException: what the function or the iteration raises.
        RuntimeError: as `map_ahead`.
    """
    if workers == 1:
        yield from map(function, items)
        return
    most = min(workers, _MAX_THREADS)
    # Two more than run at the same time: no thread waits while the caller is busy.
    yield from _map(_Runners(function, most), items, most + 2, begins_slowly=begins_slowly)


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of a function for some items, in their order, one call ahead.

    While the caller uses a result, another thread makes the next call. Calls never overlap.

    Args:
        function: runs on another thread.
        items: the calling thread iterates over them, two items ahead of the results. What the
            iteration raises is raised after the results of the items before it.

    Raises:
        BaseException: what the function or the iteration raises.
        RuntimeError: the iteration goes on in the child of a fork, which has no such thread.
    """
    if _is_on_our_thread():
        yield from map(function, items)
        return
    yield from _map(_Runners(function, 1), items, 2)


def _map(
    runners: _Runners[Item, Result],
    items: Iterable[Item],
    most: int,
    *,
    begins_slowly: bool = False,
) -> Iterator[Result]:
    """Yield the results for items in their order. most: calls that run or wait, at most."""
    pending: deque[Future[Result]] = deque()
    allowed = 1 if begins_slowly else most
    failure: BaseException | None = None
    source = iter(items)
    forks = _forks
    try:
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            pending.append(runners.submit(item))
            del item
            if len(pending) >= allowed:
                yield runners.wait_for(pending.popleft())
                _check_process(forks)
                allowed = min(allowed + 1, most)
        while pending:
            yield runners.wait_for(pending.popleft())
            _check_process(forks)
        if failure is not None:
            raise failure
    finally:
        failure = None  # its traceback has this frame
        if forks == _forks:
            for future in pending:
                future.cancel()
            # The garbage collector may end this iteration on the thread that makes the call.
            if not _is_on_our_thread():
                wait(pending)


def _check_process(forks: int) -> None:
    if forks != _forks:
        raise RuntimeError("an iteration with threads does not go on in the child of a fork")


class _Runners(Generic[Item, Result]):
    """Calls a function for items on at most `most` threads of the executor, in their order.

    A thread takes one item after another, and ends when there is none: the threads are shared, and
    a caller may pause for long.
    """

    def __init__(self, function: Callable[[Item], Result], most: int):
        self._function = function
        self._most = most
        self._waiting: deque[tuple[Future[Result], Item]] = deque()
        self._tickets: list[Lock] = []  # of calls of `_run` that may not have begun
        self._lock = Lock()
        self._running = 0  # threads

    def submit(self, item: Item) -> Future[Result]:
        """Return the future result for an item."""
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.append((future, item))
            if self._running == self._most:
                return future
            self._running += 1
            ticket = Lock()
            self._tickets = [*(old for old in self._tickets if not old.locked()), ticket]
        try:
            _get_executor().submit(self._run, ticket)
        except RuntimeError:
            # No thread starts, for example while the interpreter exits. But another thread of the
            # executor may get this call later.
            self._run(ticket)
        return future

    def wait_for(self, future: Future[Result]) -> Result:
        """Return the result of a future, or raise its error.

        One of our threads makes the calls that no thread has begun. So all threads may wait here.
        """
        if _is_on_our_thread():
            for ticket in self._tickets:
                self._run(ticket)
        return future.result()

    def _run(self, ticket: Lock) -> None:
        """Call the function until no item waits. Only the first call with a ticket does."""
        if not ticket.acquire(blocking=False):
            return
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, item = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._function(item)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del future, item  # they must not live on while the next item is read


def _get_executor() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(_MAX_THREADS, "wirescan", initializer=_mark_thread)
        return _executor


def _mark_thread() -> None:
    _thread.is_ours = True


def _is_on_our_thread() -> bool:
    return getattr(_thread, "is_ours", False)


def _forget_executor() -> None:
    """Forget the executor in the child of a fork: its threads exist only in the parent."""
    global _executor, _lock, _forks
    _forks += 1
    _executor = None
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_executor)
