"""One tiny trace, and what every policy and MIN make of it, minibatch by minibatch.

Two slots, filled by degree with 0 and 1; remote nodes 0 to 4; the controller ``always`` answers at
once, so that every minibatch but the first is pulled under a decision to replace.

``degree``, by hand. The buffer stays {0, 1}: only 0 at minibatch 6 is a hit.

``score``, by hand (scores after the minibatch; stale below 0.95):

    minibatch  hits  misses  after it                                           replaced
    1: 2 3     -     2 3     0: .95, 1: .95; counts 2: 1, 3: 1                  (no decision)
    2: 2       -     2       0, 1: .9025, both stale; counts 2: 1.95, 3: .95    2, 3 for 0, 1
                             (3 is not in the pull: one row more is fetched)
    3: 4       -     4       2: 1.8525, 3: .9025 stale; count 4: 1              4 for 3
    4: 3 4     4     3       2: 1.76, 4: 2; count 3: 1 (0 as a victim)
    5: 2 3     2     3       2: 2.76, 4: 1.9
    6: 0 3     -     0 3     2: 2.62, 4: 1.805
    7: 2 4     2 4   -

``score-published``, by hand. The same choices here, since the victims 0 and 1 come back as
candidates with .9025, less than the others have; but every entrant is fetched again, so that
minibatch 2 fetches 1 + 2 rows and minibatch 3 fetches 1 + 1.

``lru``, by hand. It admits at the first minibatch too:
1: 2 3 for 0 1. 2: hit 2. 3: 4 for 3 (last used at 1; 2 at 2). 4: hit 4, 3 for 2. 5: hit 3, 2 for 4.
6: hit 3, 0 for 2. 7: 2 4 for 0 3.

``lookahead``, by hand (next uses in brackets; the window holds the whole rest):
1: 2 [2] and 3 [4] for 0 [6] and 1 [never]. 2: hit 2 [5]. 3: 4 [4] for 2 [5]; 3 [4] stays. 4: hits
3 [5], 4 [7]. 5: hit 3 [6]; 2 [7] ties with 4 [7] by next use and has the higher count (1, 2, 5
against 3, 4), so 2 for 4. 6: hit 3; 0 is never used again and stays out. 7: hit 2; nothing is used
again, and 4 with count 3 stays out beside 2 and 3 with count 4.

MIN, by hand: hits as ``lookahead``. That 2 and 4 tie at minibatch 5 makes no difference to them; of
ties the smaller id is kept. Entered and found later: 2 and 3 at 1, 4 at 3, 2 at 5.

``lfu``, by hand. The fill counts 1. 1: 2 and 3 tie with it and stay out. 2: 2, which has 2, for 0.
3: 4 ties with 1. 4: 3 and 4 have 2; 3 for 1, then 4 ties. 5: hits 2, 3. 6: hit 3. 7: hit 2.

``lfu-decay`` (.99), by hand. 1: 2, 3 (1) for 0, 1 (.99). 2: hit 2 (1.99). 3: 4 (1) for 3 (.98).
4: hit 4 (1.99); 3 (1.97) for 2 (1.95). 5: hit 3; 2 (2.93) for 4 (1.97). 6: hit 3; 0 (1.94) stays
out beside 2 (2.90). 7: hit 2; 4 (2.93) stays out beside 3 (3.88) and 2 (3.87).

``massivegnn:interval=1``, by hand. Stale after two idle minibatches, whatever came before.
2: 0 and 1 are stale: 2 and 3 for them, one row more than the miss. 4: hit 3; 2 is stale: 4 for 2.
5: hit 3. 6: hit 3; 4 is stale: 0 (1) for 4, before 2 (.95). 7: 3, which an access leaves at .95, is
stale after one idle minibatch: 2 (1.90) for 3, before 4 (1).

``presampled``, by hand. All seven minibatches are counted: 2 and 3 (4 times each) are the fill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rudder.registries import POLICIES
from rudder.result import RunResult
from rudder.trace import Trace

Fewest = Callable[..., int]

MINIBATCHES = ((2, 3), (2,), (4,), (3, 4), (2, 3), (0, 3), (2, 4))
SAMPLED = 12
CAPACITY = 2


class Counts(NamedTuple):
    """Per minibatch."""

    hits: tuple[int, ...]
    replaced: tuple[int, ...]
    fetched: tuple[int, ...]


GOLDEN = {
    "degree": Counts((0, 0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 0, 0, 0), (2, 1, 1, 2, 2, 1, 2)),
    "score": Counts((0, 0, 0, 1, 1, 0, 2), (0, 2, 1, 0, 0, 0, 0), (2, 2, 1, 1, 1, 2, 0)),
    "score-published": Counts((0, 0, 0, 1, 1, 0, 2), (0, 2, 1, 0, 0, 0, 0), (2, 3, 2, 1, 1, 2, 0)),
    "massivegnn:interval=1": Counts(
        (0, 0, 0, 1, 1, 1, 0), (0, 2, 0, 1, 0, 1, 1), (2, 2, 1, 1, 1, 1, 2)
    ),
    "lru": Counts((0, 1, 0, 1, 1, 1, 0), (2, 0, 1, 1, 1, 1, 2), (2, 0, 1, 1, 1, 1, 2)),
    "lfu": Counts((0, 0, 0, 0, 2, 1, 1), (0, 1, 0, 1, 0, 0, 0), (2, 1, 1, 2, 0, 1, 1)),
    "lfu-decay": Counts((0, 1, 0, 1, 1, 1, 1), (2, 0, 1, 1, 1, 0, 0), (2, 0, 1, 1, 1, 1, 1)),
    "lookahead": Counts((0, 1, 0, 2, 1, 1, 1), (2, 0, 1, 0, 1, 0, 0), (2, 0, 1, 0, 1, 1, 1)),
    "presampled": Counts((2, 1, 0, 1, 2, 1, 1), (0, 0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 0, 1, 1)),
}
MIN_HITS = 6
"""0, 1, 0, 2, 1, 1, 1; exhaustive search over all sets that could be kept finds 6 as well."""
MIN_REPLACED = 4


@pytest.fixture
def trace(make_trace: Callable[..., Trace]) -> Trace:
    """Rank 1 owns 8 to 15 and accesses :data:`MINIBATCHES`; rank 0 mirrors it."""
    mirrored = [[node + 8 for node in nodes] for nodes in MINIBATCHES]
    halos = [list(range(8, 13)), list(range(5))]
    return make_trace([mirrored, MINIBATCHES], part_nodes=(8, 8), halos=halos)


def test_every_policy_is_here() -> None:
    assert {policy.partition(":")[0] for policy in GOLDEN} == {
        name for name in POLICIES.names() if POLICIES.entry(name).target.startswith("rudder.")
    }


@pytest.mark.parametrize("policy", GOLDEN)
def test_counts(policy: str, trace: Trace, replay: Callable[..., RunResult]) -> None:
    result = replay(trace, "always", policy=policy, buffer=CAPACITY)
    golden = GOLDEN[policy]
    for _, rows in result.minibatches.to_pandas().groupby("rank"):
        assert tuple(rows["hits"]) == golden.hits
        assert tuple(rows["misses"]) == tuple(
            len(nodes) - hits for nodes, hits in zip(MINIBATCHES, golden.hits, strict=True)
        )
        assert tuple(rows["replaced"]) == golden.replaced
        assert tuple(rows["fetched"]) == golden.fetched
    assert result.summary["fetched"] == 2 * sum(golden.fetched)


def test_min(trace: Trace, replay: Callable[..., RunResult], fewest: Fewest) -> None:
    result = replay(trace, "static", buffer=CAPACITY)
    assert result.details["min_hits"] == [MIN_HITS, MIN_HITS]
    assert result.details["min_replaced"] == [MIN_REPLACED, MIN_REPLACED]
    assert result.summary["min_fetched"] == 2 * (SAMPLED - MIN_HITS)
    assert fewest(CAPACITY, (0, 1), MINIBATCHES) == SAMPLED - MIN_HITS
    assert fewest(CAPACITY, (), MINIBATCHES) == result.summary["min_from_empty_fetched"] / 2
