"""core/parallel.py: how many threads a call uses, and functions that run on them."""

import gc
import os
import signal
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest

from wirescan.core import parallel
from wirescan.core.parallel import (
    LEAST_SHARE,
    WORKERS_VARIABLE,
    FixedWorkers,
    choose_threads,
    choose_workers,
    count_cores,
    cut_evenly,
    map_ahead,
    map_in_order,
    run_each,
)


def test_workers_are_what_the_caller_says_or_the_cores_of_the_process(monkeypatch):
    monkeypatch.delenv(WORKERS_VARIABLE, raising=False)
    assert choose_workers() == count_cores() == len(os.sched_getaffinity(0))
    assert choose_workers(7) == 7
    monkeypatch.setattr(parallel, "count_cores", lambda: 4)
    for text, expected in (("1", 1), (" 3 ", 3), ("9", 4), ("", 4)):
        monkeypatch.setenv(WORKERS_VARIABLE, text)
        assert choose_workers() == expected
        assert choose_workers(7) == 7
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv(WORKERS_VARIABLE, text)
        with pytest.raises(ValueError, match=WORKERS_VARIABLE):
            choose_workers()
    for workers in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            choose_workers(workers)
    for workers in (1.5, "2"):
        with pytest.raises(TypeError, match="integer"):
            choose_workers(workers)


def test_few_bytes_are_work_for_one_thread_unless_the_caller_states_a_number(monkeypatch):
    monkeypatch.delenv(WORKERS_VARIABLE, raising=False)
    monkeypatch.setattr(parallel, "count_cores", lambda: 8)
    assert choose_threads(0) == choose_threads(2 * LEAST_SHARE - 1) == 1
    assert [choose_threads(n * LEAST_SHARE) for n in (2, 5, 8, 100)] == [2, 5, 8, 8]
    assert choose_threads(50, least=10) == 5
    with FixedWorkers(3):
        assert choose_threads(0) == choose_threads(100 * LEAST_SHARE) == choose_workers() == 3
        with FixedWorkers(None):
            assert choose_workers() == 3
        with FixedWorkers(1):
            assert choose_threads(100 * LEAST_SHARE) == 1
        assert choose_workers() == 3
    assert choose_workers() == 8
    with pytest.raises(KeyError), FixedWorkers(3):
        raise KeyError
    assert choose_workers() == 8
    for workers, error in ((0, ValueError), ("2", TypeError)):
        with pytest.raises(error), FixedWorkers(workers):
            pass


def test_functions_on_threads_do_not_wait_for_other_threads():
    """With waiting functions on all threads, none would ever end."""

    def use_more_threads(number):
        inner = run_each([lambda n=n: (n, threading.get_ident()) for n in range(2)])
        with FixedWorkers(5):
            workers = choose_workers()
        return inner, threading.get_ident(), workers

    for inner, thread, workers in map_in_order(use_more_threads, range(200), 64):
        assert inner == [(0, thread), (1, thread)]
        assert workers == 1


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
def test_shares_are_contiguous_and_about_equal(most):
    for sizes in ([1], [5, 5, 5, 5, 5, 5], [0, 0, 0, 1], [0, 0], [100, 1, 1, 1], [1, 1, 1, 100]):
        shares = cut_evenly(np.array(sizes, np.int64), most)
        assert shares[0][0] == 0 and shares[-1][1] == len(sizes)
        assert all(a[1] == b[0] for a, b in zip(shares, shares[1:]))
        assert all(start < stop for start, stop in shares)
        assert len(shares) <= most
    assert cut_evenly(np.full(6, 5), 3) == [(0, 2), (2, 4), (4, 6)]


def test_functions_run_at_the_same_time_and_their_results_are_in_order():
    barrier = threading.Barrier(3)

    def meet(number):
        barrier.wait(10)
        return number, threading.get_ident()

    results = run_each([lambda n=n: meet(n) for n in range(3)])
    assert [number for number, _ in results] == [0, 1, 2]
    assert results[0][1] == threading.get_ident()
    assert len({thread for _, thread in results}) == 3


@pytest.mark.parametrize("failing", [0, 1])
def test_the_others_end_before_an_error_is_raised(failing):
    ended = []

    def work(number):
        if number == failing:
            raise MemoryError(f"no memory for {number}")
        time.sleep(0.1)
        ended.append(number)

    with pytest.raises(MemoryError, match=f"no memory for {failing}"):
        run_each([lambda n=n: work(n) for n in range(3)])
    assert sorted(ended) == sorted({0, 1, 2} - {failing})


def test_without_new_threads_the_caller_runs_everything(monkeypatch):
    class Closed:
        def submit(self, function, *arguments):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(parallel, "_executor", Closed())
    assert run_each([lambda n=n: (n, threading.get_ident()) for n in range(3)]) == [
        (n, threading.get_ident()) for n in range(3)
    ]


def test_the_child_of_a_fork_has_threads_of_its_own():
    assert run_each([lambda: 1, lambda: 2]) == [1, 2]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if run_each([lambda: 1, lambda: 2]) == [1, 2] else 2
        finally:
            os._exit(status)
    assert end_within(20, child) == 0


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_come_in_the_order_of_the_items(workers):
    def wait_and_double(number):
        time.sleep((number * 7 % 5) / 1000)
        return 2 * number

    results = map_in_order(wait_and_double, iter(range(40)), workers)
    assert list(results) == list(range(0, 80, 2))


@pytest.mark.parametrize(
    "most, map_items",
    [(1, map_ahead), *((number, partial(map_in_order, workers=number)) for number in (2, 5))],
    ids=["ahead", "2", "5"],
)
def test_only_so_many_calls_run_at_the_same_time(most, map_items):
    running: set[int] = set()
    counts = []

    def note_running(number):
        running.add(number)
        counts.append(len(running))
        time.sleep(0.002)
        running.discard(number)

    list(map_items(note_running, range(40)))
    assert max(counts) <= most


def test_the_next_call_is_made_while_a_result_is_used():
    made = [threading.Event() for _ in range(10)]
    threads = set()

    def note(number):
        threads.add(threading.get_ident())
        made[number].set()
        return -number

    results = map_ahead(note, range(10))
    for number, result in enumerate(results):
        assert result == -number
        assert number == 9 or made[number + 1].wait(10)
        assert not any(event.is_set() for event in made[number + 2 :])
    assert threading.get_ident() not in threads


def test_calls_that_begin_slowly_are_few_until_results_are_used():
    begun: list[int] = []

    def note_items():
        for number in range(20):
            begun.append(number)
            yield number

    results = map_in_order(abs, note_items(), 3, begins_slowly=True)
    counts = []
    for number in range(20):
        assert next(results) == number
        counts.append(len(begun))
    assert counts == [1, 3, 5, 7, 9, *range(10, 20), *[20] * 5]


def test_functions_end_before_an_interruption_is_raised():
    """The functions use memory that the caller frees after an error."""
    ended = threading.Event()

    def work_for_long():
        time.sleep(0.3)
        ended.set()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            run_each([lambda: None, work_for_long])
        assert ended.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("map_items", [map_ahead, partial(map_in_order, workers=2)])
def test_an_iteration_may_end_on_the_thread_that_makes_its_call(map_items):
    """The garbage collector may run there, and it finds iterations that nothing else refers to."""
    iterations = []
    may_close = threading.Event()
    closed = threading.Event()

    def close_iteration(number):
        if number == 1:
            assert may_close.wait(10)
            iterations.pop().close()
            closed.set()

    iterations.append(map_items(close_iteration, range(9)))
    next(iterations[0])
    may_close.set()
    assert closed.wait(10)


def end_within(seconds, child):
    """Return the exit code of a child process, which is ended if it takes too long."""
    deadline = time.monotonic() + seconds
    ended, status = 0, 0
    while not ended and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("map_items", [map_ahead, partial(map_in_order, workers=2)])
def test_the_child_of_a_fork_does_not_wait_for_calls(map_items, goes_on):
    def wait_a_little(number):
        time.sleep(0.2 * (number > 0))
        return number

    results = map_items(wait_a_little, range(5))
    assert next(results) == 0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if goes_on:
                with pytest.raises(RuntimeError, match="child of a fork"):
                    next(results)
            results.close()
            status = 0
        finally:
            os._exit(status)
    assert end_within(10, child) == 0
    assert list(results) == [1, 2, 3, 4]


def test_iterations_may_go_on_on_all_of_our_threads():
    """Then no thread is left to make their calls, so they make them themselves."""
    iterations = [map_ahead(abs, range(6)) for _ in range(64)]
    for iteration in iterations:
        assert next(iteration) == 0
    all_threads = threading.Barrier(64)
    ended = []

    def read_one(iteration):
        all_threads.wait(10)
        return sum(iteration)

    def read_all():
        ended.extend(map_in_order(read_one, iterations, 64))

    thread = threading.Thread(target=read_all, daemon=True)
    thread.start()
    thread.join(20)
    assert ended == [15] * 64


def test_a_failure_keeps_nothing_in_memory():
    class Item:
        pass

    def yield_one_and_fail(item):
        yield item
        raise OSError("no more items")

    item = Item()
    reference = weakref.ref(item)
    gc.disable()
    try:
        with pytest.raises(OSError, match="no more items"):
            list(map_ahead(lambda item: item, yield_one_and_fail(item)))
        del item
        assert reference() is None
    finally:
        gc.enable()


def test_on_one_of_our_threads_no_call_is_made_ahead():
    def count_ahead(_):
        called = []
        next(map_ahead(called.append, range(5)))
        return called

    assert list(map_in_order(count_ahead, range(3), 2)) == [[0]] * 3


def test_an_error_of_a_call_ahead_comes_in_its_turn():
    results = map_ahead(lambda number: 1 // (3 - number), range(9))
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_readers_that_pause_hold_no_threads():
    readers = [map_in_order(abs, iter(range(1000)), 2) for _ in range(100)]
    assert [next(reader) for reader in readers] == [0] * 100
    assert list(map_in_order(abs, range(5), 2)) == list(range(5))
    assert [sum(reader) for reader in readers] == [sum(range(1000))] * 100


def test_calls_whose_threads_do_not_start_run_once(monkeypatch):
    """The executor may queue a call and raise RuntimeError. A thread runs that call later."""
    queued = []

    class Refusing:
        def submit(self, function, *arguments):
            queued.append(partial(function, *arguments))
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(parallel, "_executor", Refusing())
    called = []
    assert run_each([partial(called.append, i) for i in range(4)]) == [None] * 4
    assert list(map_in_order(called.append, range(4, 20), 2)) == [None] * 16
    runners = parallel._Runners(called.append, 2)
    for number in range(20, 25):
        runners.submit(number)
    while queued:
        queued.pop()()
    assert sorted(called) == list(range(25))
    assert runners._running == 0


def test_a_thread_keeps_no_result_while_it_makes_the_next():
    references: list[weakref.ref[np.ndarray]] = []
    alive = []

    def make_array(number):
        alive.append(sum(reference() is not None for reference in references))
        array = np.zeros(number)
        references.append(weakref.ref(array))
        return array

    runners = parallel._Runners(make_array, 1)
    for number in range(5):
        last = runners.submit(number)
    last.result()
    assert alive == [0] * 5


@pytest.mark.parametrize(
    "map_items", [map_ahead, *(partial(map_in_order, workers=number) for number in (1, 3))]
)
def test_results_before_a_failure_of_the_items_come_first(map_items):
    def fail_after_five():
        yield from range(5)
        raise OSError("no more items")

    results = []
    with pytest.raises(OSError, match="no more items"):
        for result in map_items(abs, fail_after_five()):
            results.append(result)
    assert results == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("map_items", [map_ahead, partial(map_in_order, workers=2)])
def test_a_reader_that_stops_early_starts_no_more_calls(map_items):
    started = []
    items = iter(range(1000))
    results = map_items(started.append, items)
    next(results)
    results.close()
    assert len(started) < 10
    assert next(items) < 10
