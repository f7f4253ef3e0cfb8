"""Windows before and after a decision, and what they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rudder import Decision
from rudder.result import MinibatchRow
from rudder.steering.context import ContextBuilder, Settled

Make = Callable[..., MinibatchRow]
REPLACE, KEEP = Decision(replace=True), Decision(replace=False)


def run(
    context: ContextBuilder,
    rows: list[MinibatchRow],
    decisions: dict[int, Decision],
) -> list[Settled]:
    """Apply decisions at their steps; returns all that settles."""
    settled = []
    for step, row in enumerate(rows):
        if step in decisions:
            context.applied(step, decisions[step])
        settled += context.add(row)
    return settled


def test_by_hand(make_row: Make) -> None:
    # 100 sampled per minibatch. Before: 60 misses. At step 3 ten rows are replaced, four of them
    # fetched beside the misses; from then on 40 misses. Rows of 100 bytes, windows of 3.
    rows = [make_row(k, hits=40) for k in range(3)]
    rows += [make_row(3, hits=60, replaced=10, fetched=44)]
    rows += [make_row(k, hits=60) for k in range(4, 8)]
    settled = run(ContextBuilder(100, window=3), rows, {3: REPLACE})
    assert len(settled) == 1
    assert (settled[0].question, settled[0].settled_at) == (3, 6)
    past = settled[0].past
    assert (past.minibatch, past.window, past.replaced) == (3, 3, 10)
    assert past.hit_rate_change == pytest.approx(0.60 - 0.40)
    # 180 rows before, 44 + 40 + 40 after.
    assert past.communication_change == pytest.approx((124 - 180) / 180)
    assert (past.hits_effect, past.communication_effect) == ("increase", "decrease")
    # Saved: (180 - 120) misses; spent: the 4 rows beside them.
    assert past.reward == (60 - 4) * 100


def test_thresholds_are_exclusive(make_row: Make) -> None:
    # 1 point of 1000 sampled is 10 hits: 9 is stagnant, 10 is not. 2 % of 500 fetched is 10.
    for hits, effects in ((509, ("stagnant", "stagnant")), (511, ("increase", "decrease"))):
        rows = [make_row(0, sampled=1000, hits=500), make_row(1, sampled=1000, hits=hits)]
        (settled,) = run(ContextBuilder(1, window=1), rows, {1: REPLACE})
        assert (settled.past.hits_effect, settled.past.communication_effect) == effects


def test_windows_end_at_the_next_replacement(make_row: Make) -> None:
    rows = [make_row(k, replaced=10 if k in (4, 6) else 0) for k in range(12)]
    settled = run(ContextBuilder(100), rows, {4: REPLACE, 5: KEEP, 6: REPLACE})
    by_step = {s.past.minibatch: s for s in settled}
    # Step 4: four minibatches before it, but only two until the replacement at 6.
    assert by_step[4].past.window == 2
    # Step 5: one minibatch since the replacement at 4.
    assert by_step[5].past.window == 1
    # Step 6: two minibatches since the replacement at 4, which is enough to settle at step 8.
    assert (by_step[6].past.window, by_step[6].settled_at) == (2, 8)


def test_a_replacement_that_replaced_nothing_cuts_no_window(make_row: Make) -> None:
    rows = [make_row(k) for k in range(12)]
    settled = run(ContextBuilder(100, window=3), rows, {4: REPLACE, 5: REPLACE})
    assert [(s.past.minibatch, s.past.window) for s in settled] == [(4, 3), (5, 3)]


def test_the_end_of_the_run_cuts_the_window_after(make_row: Make) -> None:
    context = ContextBuilder(100)
    assert run(context, [make_row(k) for k in range(10)], {7: KEEP}) == []
    (settled,) = context.finish()
    assert settled.past.window == 3
    assert context.finish() == []


def test_history_is_bounded_and_says_what_is_not_settled(make_row: Make) -> None:
    context = ContextBuilder(100, history=3, window=4)
    run(context, [make_row(k) for k in range(10)], dict.fromkeys(range(1, 10), KEEP))
    history = context.history()
    assert [p.minibatch for p in history] == [7, 8, 9]
    assert all(p.window == 0 and p.hits_effect is None and p.reward == 0.0 for p in history)
    # Ten minibatches: the decision at step 6 has been followed by four, the later ones by fewer.
    assert [p.minibatch for p in context._pending] == [7, 8, 9]


def test_memory_does_not_grow(make_row: Make) -> None:
    context = ContextBuilder(100)
    rows = [make_row(k, replaced=k % 7 == 0) for k in range(2000)]
    settled = run(context, rows, dict.fromkeys(range(1, 2000), KEEP))
    assert len(context._pending) <= 8
    assert len(context._sums) == 17
    assert len(settled) + len(context.finish()) == 1999


def test_minibatches_without_remote_nodes_change_nothing(make_row: Make) -> None:
    rows = [make_row(k, sampled=0, hits=0) for k in range(4)]
    (settled,) = run(ContextBuilder(100, window=2), rows, {2: KEEP})
    past = settled.past
    assert (past.hit_rate_change, past.communication_change, past.reward) == (0.0, 0.0, 0.0)
    assert (past.hits_effect, past.communication_effect) == ("stagnant", "stagnant")


def test_settled_windows_agree_with_a_naive_sum(make_row: Make) -> None:
    import random

    draw = random.Random(1)
    rows = [
        make_row(
            k,
            sampled=(sampled := draw.randrange(50, 150)),
            hits=draw.randrange(sampled),
            replaced=draw.choice([0, 0, 0, 5]),
        )
        for k in range(300)
    ]
    applied = {k: KEEP for k in range(1, 300) if draw.random() < 0.5}
    for question, _, past in run(ContextBuilder(3), rows, applied):
        before = rows[question - past.window : question]
        after = rows[question : question + past.window]
        assert past.reward == 3 * (sum(r.misses for r in before) - sum(r.fetched for r in after))
        rates = [sum(r.hits for r in w) / sum(r.remote_sampled for r in w) for w in (before, after)]
        assert past.hit_rate_change == pytest.approx(rates[1] - rates[0])
        # One comparison spans one change of the buffer only.
        assert not any(r.replaced for r in before[1:])
        assert not any(r.replaced for r in after[1:])
