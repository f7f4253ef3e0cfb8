"""Cleaning against a naive account of the same rules."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rudder_datasets.cleaning import EdgeRules, clean_edges, clean_labels

from rudder.errors import DatasetError

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(pairs=PAIRS, rules=st.builds(EdgeRules, st.booleans(), st.booleans(), st.booleans()))
def test_edges_and_counts_agree_with_a_naive_account(
    pairs: list[tuple[int, int]], rules: EdgeRules
) -> None:
    src, dst = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    found_src, found_dst, counts = clean_edges(src, dst, 7, rules, "test")

    expected = [(u, v) for u, v in pairs if u != v or not rules.drop_self_loops]
    told = {"edges_read": len(pairs)}
    if rules.drop_self_loops:
        told["self_loops_removed"] = len(pairs) - len(expected)
    if rules.drop_duplicates:
        told["duplicates_removed"] = len(expected) - len(set(expected))
        expected = sorted(set(expected))
    if rules.add_reverse:
        missing = {(v, u) for u, v in expected} - set(expected)
        told["reverse_edges_added"] = len(missing)
        expected += sorted(missing)
    told["isolated_nodes"] = 7 - len({end for pair in expected for end in pair})
    assert counts == told
    edges = list(zip(found_src.tolist(), found_dst.tolist(), strict=True))
    assert Counter(edges) == Counter(expected)
    assert edges == (sorted(expected) if rules.drop_duplicates else expected)
    assert found_src.dtype == found_dst.dtype == np.int64


@pytest.mark.parametrize("times", [127, 128, 256, 1000])
def test_any_number_of_duplicates_is_one_edge(times: int) -> None:
    src, dst, counts = clean_edges(np.zeros(times, int), np.ones(times, int), 2, EdgeRules(), "t")
    assert (src.tolist(), dst.tolist()) == ([0, 1], [1, 0])
    assert counts["duplicates_removed"] == times - 1


@pytest.mark.parametrize(
    ("src", "dst", "says"),
    [
        ([0, 3], [1, 1], r"source outside 0\.\.2 .first: edge 1, node 3"),
        ([0, 0], [1, -1], r"destination outside 0\.\.2 .first: edge 1, node -1"),
        ([0.0], [1.0], "whole numbers"),
        ([0, 1], [1], "sources for"),
    ],
)
def test_ends_that_are_no_nodes(src: list[int], dst: list[int], says: str) -> None:
    with pytest.raises(DatasetError, match=f"here: .*{says}"):
        clean_edges(np.array(src), np.array(dst), 3, EdgeRules(), "here")


def test_nan_is_never_cast() -> None:
    labels = clean_labels(np.array([np.nan, 3, -7, 0], dtype=np.float32), "t")
    assert labels.values.tolist() == [-1, 3, -1, 0]
    assert labels.labelled.tolist() == [False, True, False, True]
    assert labels.counts == {"nan_labels": 1, "unlabelled": 2}
    assert labels.classes == 4
    with pytest.raises(DatasetError, match="label 3 found, but only 3 classes"):
        clean_labels(np.array([3]), "t", classes=3)
    with pytest.raises(DatasetError, match="no whole numbers"):
        clean_labels(np.array([np.inf]), "t")
