"""Whole rows of structured arrays."""

import numpy as np
import pytest

from wirescan.core.row_arrays import copy_rows, join_rows, keep_rows, select_rows, view_bytes

DTYPE = np.dtype({"names": ["a", "b"], "formats": ["i8", "u1"], "itemsize": 24})
ROWS = np.array([(1, 2), (3, 4), (5, 6)], DTYPE)
KEYS = [
    slice(1, None),
    np.array([True, False, True]),
    np.array([2, 0, 2, -1]),
    np.array([2, -1], np.int8),
    np.array([2, 0], np.uint64),
    np.array([[0, 1], [2, -1]]),
    np.zeros(0, np.int64),
    [2, 0],
    [False, True, True],
    [],
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("step", [1, -1])
def test_selected_rows_are_those_of_numpy(key, step):
    rows = ROWS[::step]
    selected = select_rows(rows, key)
    assert selected.dtype == DTYPE
    assert selected.tolist() == rows[key].tolist()


def test_a_row_that_does_not_exist_is_an_error():
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        select_rows(ROWS, np.array([3]))


@pytest.mark.parametrize("count", [2, 4])
def test_a_mask_of_another_length_is_an_error(count):
    with pytest.raises(IndexError, match="boolean index did not match"):
        select_rows(ROWS, np.ones(count, bool))


def test_selected_rows_keep_their_padding():
    rows = ROWS.copy()
    view_bytes(rows).view(np.uint8)[:] = np.arange(rows.nbytes)
    for key in (np.array([2, 0]), np.array([True, False, True])):
        assert select_rows(rows, key).tobytes() == view_bytes(rows)[key].tobytes()


def test_a_copy_is_writable_and_apart():
    rows = ROWS.copy()
    rows.setflags(write=False)
    copied = copy_rows(rows)
    copied["a"] = 0
    assert copied.tolist() == [(0, 2), (0, 4), (0, 6)]
    assert rows.tolist() == ROWS.tolist()


def test_joined_rows_are_one_after_another():
    joined = join_rows([ROWS[:1], ROWS[:0], ROWS[::-1]])
    assert joined.dtype == DTYPE
    assert joined.tolist() == [(1, 2), (5, 6), (3, 4), (1, 2)]


def test_no_arrays_cannot_be_joined():
    with pytest.raises(ValueError, match="no arrays to join"):
        join_rows([])


def test_large_joined_rows_may_be_changed_and_do_not_share_memory():
    rows = np.zeros(1 << 18, DTYPE)
    first, second = join_rows([rows, rows]), copy_rows(rows)
    first["a"] = 1
    second["a"] = 2
    assert len(first) == 2 << 18
    assert set(first["a"].tolist()) == {1}
    assert set(second["a"].tolist()) == {2}
    assert not rows["a"].any()


def test_all_rows_are_kept_without_a_copy():
    rows = np.arange(3).view([("a", "i8")])
    assert keep_rows(rows, np.ones(3, bool)) is rows
    assert keep_rows(rows, np.array([True, False, True]))["a"].tolist() == [0, 2]
    assert keep_rows(rows[:0], np.zeros(0, bool))["a"].tolist() == []
