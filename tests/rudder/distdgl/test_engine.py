"""Real DistDGL training on emulated hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.errors import CapacityError, PolicyError, SpecError, UnknownNameError, UsageError
from rudder.plugins import load_file
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, RunResult

pytestmark = pytest.mark.cluster
Run = Callable[..., RunResult]


def column(result: RunResult, name: str) -> Any:
    return result.minibatches.column(name).to_numpy()


def assert_same_training(one: RunResult, other: RunResult) -> None:
    for name in ("rank", "epoch", "step", "seeds", "local", "remote_sampled", "loss"):
        assert column(one, name).tolist() == column(other, name).tolist()


@pytest.fixture(scope="module")
def plain(run: Run) -> RunResult:
    return run("none", prefetch_depth=0, rate=200.0)


@pytest.fixture(scope="module")
def always(run: Run) -> RunResult:
    return run("always", rate=200.0)


def test_every_row_adds_up(plain: RunResult, always: RunResult) -> None:
    for result in (plain, always):
        assert result.minibatches.schema == MINIBATCH_SCHEMA
        remote, hits, misses = (column(result, n) for n in ("remote_sampled", "hits", "misses"))
        assert (hits + misses == remote).all()
        assert (column(result, "fetched") >= misses).all()
        assert (column(result, "bytes_ids") == 8 * column(result, "fetched")).all()
        assert (column(result, "bytes_sampling") > 0).any()
        for name in ("sample_s", "fetch_s", "compute_s", "stall_s"):
            assert (column(result, name) >= 0).all()
        assert np.isfinite(column(result, "loss")).all()


def test_one_row_per_minibatch_and_rank(always: RunResult) -> None:
    for rank in range(2):
        mine = column(always, "rank") == rank
        assert column(always, "step")[mine].tolist() == list(range(mine.sum()))
        assert sorted(set(column(always, "epoch")[mine])) == [0, 1]


def test_summary_has_the_common_keys(always: RunResult) -> None:
    assert tuple(always.summary) == SUMMARY_KEYS
    assert always.summary["test_metric"] > 0.3  # 8 planted classes: chance is far below
    assert always.summary["decisions"] > 0
    assert always.summary["valid_share"] == 1.0


def test_plain_distdgl_fetches_every_remote_row_and_the_buffer_fewer(
    plain: RunResult, always: RunResult
) -> None:
    assert plain.summary["fetched"] == plain.summary["remote_sampled"]
    assert plain.summary["hits"] == plain.summary["filled"] == 0
    assert plain.summary["decisions"] > 0  # `none` is asked too, and keeps
    assert always.summary["remote_sampled"] == plain.summary["remote_sampled"]
    assert always.summary["fetched"] < 0.9 * plain.summary["fetched"]


def test_nothing_of_what_is_trained_changes(plain: RunResult, always: RunResult) -> None:
    """Bit by bit, by the buffer and by pulls that run ahead."""
    assert_same_training(plain, always)
    assert column(plain, "fetched").sum() > column(always, "fetched").sum()


def test_the_wire_agrees_with_the_counts(plain: RunResult, always: RunResult) -> None:
    """What the hosts' interfaces sent less with the buffer is what it fetched less."""

    def sent(result: RunResult) -> int:
        return sum(c["tx_bytes"] for c in result.details["host_counters"])

    def counted(result: RunResult) -> int:
        rows = int(column(result, "bytes_features").sum() + column(result, "bytes_ids").sum())
        row = result.summary["bytes_fetched"] // max(result.summary["fetched"], 1) + 8
        return rows + result.summary["filled"] * row

    for same in ("bytes_sampling", "bytes_evaluation", "bytes_gradients"):
        assert column(plain, same).sum() == column(always, same).sum()
    wire = sent(plain) - sent(always)
    assert wire == pytest.approx(counted(plain) - counted(always), rel=0.05)


def test_no_pull_waits_for_the_controller_in_async_mode(always: RunResult) -> None:
    assert (column(always, "wait_decision_s") == 0.0).all()


def test_served_features_equal_the_stored_rows(run: Run) -> None:
    """The trainers compare every matrix and would have failed the run."""
    for policy in ("score", "score-published", "massivegnn"):
        result = run("always", verify=True, policy=policy, epochs=1)
        assert result.summary["hits"] > 0


def test_sync_replaces_at_exactly_the_intervals_minibatches(run: Run) -> None:
    result = run("fixed:interval=4", mode="sync", epochs=1, fill="empty")
    for rank in range(2):
        mine = column(result, "rank") == rank
        replaced = np.flatnonzero(column(result, "replaced")[mine] > 0) + 1
        assert replaced.size
        assert (replaced % 4 == 0).all()  # minibatches count from 1: the 4th, 8th, …
    waited = column(result, "wait_decision_s")
    assert (waited[column(result, "step") == 0] == 0.0).all()  # nothing was asked before it
    assert (waited[column(result, "step") > 0] > 0.0).all()


def test_gat_and_several_trainers_per_host(run: Run) -> None:
    result = run("static", model="gat", trainers=2, hidden=8, heads=2, epochs=1)
    assert sorted(set(column(result, "rank"))) == [0, 1, 2, 3]
    assert result.summary["test_metric"] > 0.2


def test_uneven_batch_counts_end_and_the_surplus_is_told(run: Run) -> None:
    # sbm:nodes=6001 has 3,601 training nodes: one trainer has 1,801 (4 minibatches of 600),
    # the other 1,800 (3). Without the cut the first would wait for the other for ever.
    result = run("none", graph="sbm:nodes=6001", batch_size=600, epochs=1, prefetch_depth=0)
    assert [int((column(result, "rank") == rank).sum()) for rank in range(2)] == [3, 3]
    assert sorted(result.details["surplus"]) == [0, 1]


def test_a_run_can_be_loaded_from_its_directory(always: RunResult) -> None:
    assert always.run_dir is not None
    loaded = RunResult.load(always.run_dir)
    assert loaded.summary == always.summary
    assert loaded.minibatches.equals(always.minibatches)
    logs = {p.name for p in (always.run_dir / "logs").iterdir()}
    assert logs == {f"{kind}-{k}.log" for kind in ("server", "trainer") for k in range(2)}


@pytest.mark.parametrize(
    ("controller", "fields", "error", "says"),
    [
        ("alway", {}, UnknownNameError, "did you mean 'always'"),
        ("fixed:intervall=3", {}, SpecError, "did you mean 'interval'"),
        ("fixed:interval=0", {}, SpecError, "interval"),
        ("always", {"policy": "scores"}, UnknownNameError, "did you mean 'score'"),
        ("always", {"graph": "debain"}, UnknownNameError, "did you mean 'debian'"),
        ("always", {"partition_method": "meits"}, UnknownNameError, "did you mean 'metis'"),
        ("always", {"buffer": 6001}, CapacityError, "6001"),
        ("always", {"rate": 0.01}, UsageError, "0.01 Mbit/s"),
        ("always", {"rate_at": ((1, 0.01),)}, UsageError, "0.01 Mbit/s"),
    ],
)
def test_wrong_input_is_told_before_anything_starts(
    run: Run, controller: str, fields: dict[str, Any], error: Any, says: str
) -> None:
    with pytest.raises(error, match=says):
        run(controller, **fields)


def test_a_controller_of_ones_own_travels_with_the_job(tmp_path: Path, run: Run) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from rudder import Controller, Decision\n"
        "from rudder.registries import CONTROLLERS\n\n\n"
        "class EveryOther(Controller):\n"
        "    def _decide(self, observation):\n"
        "        assert observation.facts.graph == 'sbm:nodes=6000'\n"
        "        return Decision(replace=observation.index % 2 == 0)\n\n\n"
        'CONTROLLERS.register("every-other", EveryOther)\n'
    )
    result = run("every-other", plugins=(load_file(plugin),), epochs=1)
    answers = [d["decision"]["replace"] for d in result.decisions if d["rank"] == 0]
    assert len(answers) > 2
    assert answers == [k % 2 == 0 for k in range(len(answers))]


def test_a_trainer_that_fails_while_the_other_waits_for_it_is_told_at_once(
    tmp_path: Path, run: Run
) -> None:
    """In its background thread; DGL's exit hook would wait for the other trainer for ever."""
    plugin = tmp_path / "failing.py"
    plugin.write_text(
        "import os\n"
        "from rudder.errors import PolicyError\n"
        "from rudder.policies.decayed import Score\n"
        "from rudder.registries import POLICIES\n\n\n"
        "class Failing(Score):\n"
        "    def ledger(self, capacity):\n"
        "        ledger = super().ledger(capacity)\n"
        "        advance, self.left = ledger.advance, 3\n"
        "        def failing(ids, share):\n"
        "            self.left -= os.environ['RANK'] == '1'\n"
        "            if self.left < 0:\n"
        "                raise PolicyError('the fourth minibatch')\n"
        "            return advance(ids, share)\n"
        "        ledger.advance = failing\n"
        "        return ledger\n\n\n"
        'POLICIES.register("failing", Failing)\n'
    )
    # An error of Rudder's own comes out as what it is, and names the trainer and its log.
    with pytest.raises(
        PolicyError, match=r"trainer 1 on host1: the fourth minibatch .*log"
    ) as told:
        run("always", policy="failing", plugins=(load_file(plugin),))
    assert "exit status 1" in str(told.value.__cause__)  # and not: silent for two minutes


def test_looking_ahead_fetches_less_and_trains_the_same_minibatches(run: Run) -> None:
    """Served rows are compared with the stored ones in both runs."""
    fields: dict[str, Any] = {"epochs": 3, "buffer": 0.25, "batch_size": 100}
    ahead = run("always", verify=True, policy="lookahead:window=8", **fields)
    score = run("always", verify=True, policy="score", **fields)
    assert_same_training(ahead, score)
    assert (column(ahead, "fetched") == column(ahead, "misses")).all()
    assert ahead.summary["fetched"] < 0.95 * score.summary["fetched"]
    assert all(held > 0 for held in ahead.details["ahead_bytes"])
    assert score.details["ahead_bytes"] == [0, 0]


def test_a_presampled_buffer_is_filled_by_frequency_and_kept(run: Run) -> None:
    fields: dict[str, Any] = {"epochs": 3, "buffer": 0.25, "batch_size": 100}
    result = run("always", verify=True, policy="presampled:minibatches=20", **fields)
    score = run("always", verify=True, policy="score", **fields)
    assert result.summary["filled"] == score.summary["filled"] > 0
    assert result.summary["replaced"] == 0
    assert 0 < result.summary["hit_rate"] < 1
