"""What a buffer holds at the start, and how many rows it has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.buffer import fill_ids, frequent_ids, resolve_capacity
from rudder.errors import BufferUseError, CapacityError

DEGREE = np.array([9, 1, 5, 5, 7, 5, 2, 8], np.int32)
HALO = np.array([1, 2, 3, 5, 6])
OTHER = np.array([0, 4, 7])


def test_degree_takes_the_highest_with_ties_by_smaller_id() -> None:
    # Degrees of the halo: 1: 1, 2: 5, 3: 5, 5: 5, 6: 2.
    assert fill_ids("degree", 2, HALO, DEGREE).tolist() == [2, 3]
    assert fill_ids("degree", 4, HALO, DEGREE).tolist() == [2, 3, 5, 6]


def test_degree_goes_on_beyond_the_halo() -> None:
    # The halo first, all of it, then 0 (9), 7 (8), 4 (7), although their degrees are higher.
    assert fill_ids("degree", 7, HALO, DEGREE, OTHER).tolist() == [2, 3, 5, 6, 1, 0, 7]
    assert fill_ids("degree", 99, HALO, DEGREE, OTHER).tolist() == [2, 3, 5, 6, 1, 0, 7, 4]
    assert fill_ids("degree", 99, HALO, DEGREE).tolist() == [2, 3, 5, 6, 1]


def test_empty() -> None:
    found = fill_ids("empty", 3, HALO, DEGREE, OTHER)
    assert (found.tolist(), found.dtype) == ([], np.int64)


@given(st.integers(0, 8), st.integers(0, 5))
def test_random_is_distinct_and_repeats_by_seed(capacity: int, seed: int) -> None:
    found = fill_ids("random", capacity, HALO, DEGREE, OTHER, seed)
    assert found.tolist() == fill_ids("random", capacity, HALO, DEGREE, OTHER, seed).tolist()
    assert len(set(found.tolist())) == len(found) == capacity
    assert set(found[:5].tolist()) <= set(HALO.tolist())
    assert found.dtype == np.int64


def test_random_depends_on_the_seed() -> None:
    halo = np.arange(1000)
    draws = [fill_ids("random", 20, halo, np.ones(1000, np.int32), seed=s) for s in (0, 1)]
    assert draws[0].tolist() != draws[1].tolist()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(0, 70))
def test_degree_equals_a_full_sort(degrees: list[int], capacity: int) -> None:
    halo = np.arange(len(degrees))
    found = fill_ids("degree", capacity, halo, np.array(degrees, np.int32))
    wanted = sorted(range(len(degrees)), key=lambda n: (-degrees[n], n))[:capacity]
    assert found.tolist() == wanted


def test_frequent_takes_what_most_minibatches_need_and_then_the_others() -> None:
    samples = [np.array(ids) for ids in ([2, 7], [2, 5, 9], [5, 9], [2, 9])]
    # 2 and 9: three minibatches, 5: two, 7: one; then degree's order, without those.
    others = np.array([9, 4, 8, 2])
    for capacity, wanted in (
        (0, []),
        (1, [2]),
        (3, [2, 9, 5]),
        (5, [2, 9, 5, 7, 4]),
        (9, [2, 9, 5, 7, 4, 8]),
    ):
        assert frequent_ids(samples, capacity, others).tolist() == wanted
    assert frequent_ids([], 2, others).tolist() == [9, 4]
    assert frequent_ids(samples, 3, others).dtype == np.int64


def test_unknown_fill_is_refused() -> None:
    with pytest.raises(BufferUseError, match="empty, degree, random"):
        fill_ids("dergee", 1, HALO, DEGREE)  # type: ignore[arg-type]


def test_capacity() -> None:
    assert resolve_capacity(0.25, 1000, 5000) == 250
    assert resolve_capacity(1.0, 1000, 1000) == 1000
    assert resolve_capacity(1, 1000, 5000) == 1
    assert resolve_capacity(0, 1000, 5000) == 0
    assert resolve_capacity(5000, 1000, 5000) == 5000


@pytest.mark.parametrize("buffer", [5001, -1, -0.5, 1.5, float("nan"), True, "0.25"])
def test_capacity_is_refused(buffer: float) -> None:
    with pytest.raises(CapacityError, match="buffer"):
        resolve_capacity(buffer, 1000, 5000)
