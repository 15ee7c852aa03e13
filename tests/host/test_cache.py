"""The cache of host functions: known by content, bounded, shared by threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from twingrad.interop import ArgumentError, Cache


def counted():
    """A function, and the list of the arguments that it was called with."""
    calls = []

    def total(*args):
        calls.append(args)
        return sum(float(np.sum(x)) for x in args)

    return total, calls


def test_equal_contents_are_computed_once():
    total, calls = counted()
    cache, x = Cache(4), np.arange(6.0)
    assert cache.get(total, x, 1) == cache.get(total, x.copy(), 1) == 16.0
    assert len(calls) == len(cache) == cache.computed == 1


@pytest.mark.parametrize(
    "other",
    [
        np.arange(6.0)[::-1],
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).astype("float32"),
        np.arange(6.0).view("int64"),
        0.0,
        0,
        False,
    ],
    ids=str,
)
def test_other_values_shapes_and_types_are_other_results(other):
    total, calls = counted()
    cache = Cache(9)
    for x in (np.arange(6.0), 1, 1.0, True, other):
        cache.get(total, x)
    assert len(calls) == len(cache) == 5


def test_one_cache_serves_several_functions():
    cache, x = Cache(4), np.arange(3.0)
    assert (cache.get(np.sum, x), cache.get(np.prod, x + 1)) == (3.0, 6.0)
    assert cache.get(np.max, x) == 2.0


def test_a_change_in_place_is_another_content():
    total, calls = counted()
    cache, x = Cache(4), np.ones(3)
    cache.get(total, x)
    x[0] = 5.0
    assert cache.get(total, x) == 7.0 and len(calls) == 2


def test_the_least_recently_used_goes():
    total, calls = counted()
    cache = Cache(2)
    for x in (1, 2, 1, 3, 1, 2):  # 3 takes the place of 2
        assert cache.get(total, x) == x and len(cache) <= 2
    assert [args[0] for args in calls] == [1, 2, 3, 2]
    cache.clear()
    assert len(cache) == 0


def test_a_result_that_refers_to_its_argument_stays_what_it_was():
    """An optimizer changes the memory that a host function was given."""
    cache, x = Cache(2), np.array([1.0, 2.0])
    kept = cache.get(lambda m: m, x)
    x += 1
    assert kept.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        kept += 1


def test_size_0_keeps_nothing_and_a_negative_one_is_refused():
    total, calls = counted()
    cache = Cache(0)
    assert cache.get(total, 1) == cache.get(total, 1) == 1 and len(calls) == 2
    with pytest.raises(ArgumentError, match="Cache: the size is -1"):
        Cache(-1)


def test_a_function_that_raises_is_called_again():
    cache, calls = Cache(2), []

    def fails(x):
        calls.append(x)
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.get(fails, 1)
    assert calls == [1, 1] and len(cache) == 0


def test_threads_that_want_the_same_compute_it_once():
    cache, calls, started = Cache(3), [], threading.Barrier(8)

    def slow(x):
        calls.append(x)
        threading.Event().wait(0.05)
        return x * 10

    def work(i):
        started.wait()
        return [cache.get(slow, (i + k) % 3) for k in range(3)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert found == [[(i + k) % 3 * 10 for k in range(3)] for i in range(8)]
    assert sorted(calls) == [0, 1, 2]
