"""Label rules: which answer was right at a recorded question.

A rule judges what was measured of all runs of a collection (:mod:`.measuring`) and says, for each
question, *replace* or *keep*, with what weight, or why it cannot tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rudder.errors import SpecError, TrainingDataError
from rudder.observation import feature_names
from rudder.registry import Registry
from rudder.spec import Spec

from .checks import TEST, TRAIN, VALIDATION
from .collection import Collection
from .examples import SCHEMA, ExampleTable
from .measuring import Columns, Measured

RULES = Registry("label rule", base=f"{__name__}:Rule")
LEAST_SEEDS = 3
"""One for each part."""
TRAIN_SPLIT = "id_train"

TIE, CUT, KEPT, NOTHING_LEFT, UNSETTLED, TRAINED_ON = (
    "tie", "cut short by the end", "kept", "nothing replaced", "never settled",
    "accesses are trained on",
)  # fmt: skip
"""Why a question has no label."""

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]


class Judged(NamedTuple):
    """What a rule says of each question.

    Attributes:
        gain: float64: what it scores for replace; above 0 = replace; NaN = it cannot score it.
        weight: float64: what a mistake costs, in any unit; above 0 where there is a label.
        dropped: text: why there is no label; "" = there is one.
    """

    gain: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    dropped: Texts


class Rule(ABC):
    """A label rule.

    Attributes:
        horizon: minibatches that both branches are rolled out over; 0 = it looks at none.
    """

    horizon: int = 0

    @abstractmethod
    def judge(self, measured: Columns, train: Mask) -> Judged:
        """Judge questions.

        Args:
            measured: columns of :data:`rudder_training_ml.measuring.MEASURED`.
            train: bool: which are of the training part. Statistics over questions may come from
                these alone.
        """


class Counterfactual(Rule):
    """Replace, if fetching is cheaper for it within the horizon than after keeping.

    ``saving`` = rows fetched after keep - rows fetched after replace, replacement rows included,
    over the same minibatches; nothing is replaced afterwards in either branch. Less than ``tie`` of
    what keep fetches is a tie. Windows that the end of the run cuts to under half of the horizon
    are dropped: a replacement is paid at once and saves later, so they would say *keep* for no
    other reason than where the trace happened to end. The others are judged by what is left.

    The gain, and the weight with it, is *relative*: saving / rows fetched in the costlier branch,
    -1..1. Rows would not do: their number grows with batch size, fan-out and buffer, so that one
    large scenario outvoted all others, while runs are compared by ratios of communication; within
    one scenario both weigh alike. (The costlier branch, not keep: where keep fetches next to
    nothing, one needless replacement would outweigh all other questions.)

    Args:
        horizon: minibatches, from the one on at which the answer applied.
        tie: share of the rows fetched after keep, 0..1.

    Raises:
        SpecError: a value out of range.
    """

    def __init__(self, horizon: int = 32, tie: float = 0.002) -> None:
        if horizon < 1:
            raise SpecError(f"counterfactual: horizon must be a count from 1, found {horizon!r}")
        if not 0 <= tie < 1:
            raise SpecError(f"counterfactual: tie must lie in 0..1, found {tie!r}")
        self.horizon = horizon
        self.tie = tie

    def judge(self, measured: Columns, train: Mask) -> Judged:
        keep, replace = measured["keep_fetched"], measured["replace_fetched"]
        saving = (keep - replace).astype(np.float64)
        gain = saving / np.maximum(np.maximum(keep, replace), 1)
        dropped = np.full(len(gain), "", np.object_)
        dropped[(np.abs(saving) < self.tie * keep) | (saving == 0)] = TIE
        dropped[2 * measured["looked"] < self.horizon] = CUT
        return Judged(gain, np.abs(gain), dropped)


class Paper(Rule):
    """The paper's rule: a replacement was right if what followed it is better than what preceded.

    gain = z(change of %-Hits) - z(change of the accesses of the nodes that left)
    - z(change of the fetch seconds), each per minibatch, over the windows before and after a
    decision that :mod:`rudder.steering.context` compares; z = (value - mean) / deviation over the
    *training* questions that are judged. Above 0 = replace. Every example weighs the same.

    - *Accesses of the nodes that left*: per node and minibatch, in the window after the minibatch
      at whose end they left, less those in the window up to it. It is what the paper's frequency of
      evicted nodes is after: were nodes evicted that are still needed? Only a trace can tell, since
      a run does not know which of its misses it once had.
    - *Fetch seconds*: of the run; modelled in a replay.

    Only replacements are judged: after keep nothing has left, and a rising %-Hits would say
    *replace* where keeping did well.

    As a label it has two known weaknesses, kept because it stands for the published pipeline: what
    changed by itself (drift, the draw of the seeds) is put down to the decision, and half of the
    questions come out positive whatever replacing costs, since means are taken out.
    """

    def judge(self, measured: Columns, train: Mask) -> Judged:
        dropped = np.full(len(train), "", np.object_)
        dropped[np.isnan(measured["effect_left_access"])] = CUT
        dropped[measured["window"] == 0] = UNSETTLED
        dropped[measured["replaced"] == 0] = NOTHING_LEFT
        dropped[~measured["replace"]] = KEPT
        judged = dropped == ""
        gain = np.full(len(train), np.nan)
        gain[judged] = 0.0
        for name, sign in _PAPER:
            values = measured[name]
            gain[judged] += sign * _z(values[judged], values[judged & train])
        return Judged(gain, judged.astype(np.float64), dropped)


_PAPER = (("effect_hit_rate", 1.0), ("effect_left_access", -1.0), ("effect_fetch_s", -1.0))


def _z(values: npt.NDArray[np.float64], train: npt.NDArray[np.float64]) -> Any:
    """Standardised by training values; 0 where these do not vary, or are none."""
    if not len(train) or not train.std() > 1e-12 * max(1.0, float(np.abs(train).max())):
        return np.zeros_like(values)
    return (values - train.mean()) / train.std()


RULES.register(
    "counterfactual",
    Counterfactual,
    summary="replay both answers from there; the one that fetches less is right",
    params={"horizon": 32, "tie": 0.002},
)
RULES.register(
    "paper",
    Paper,
    summary="what followed a replacement: %-Hits, evicted nodes' accesses, fetch seconds",
)


def parts_of(collection: Collection) -> list[str]:
    """The part of each run, by its seed: the greatest is for testing, the next for validation.

    So a part has every scenario, and no access trace lies in two. Scenarios that are not of the
    split ``id_train`` are for testing only.

    Raises:
        TrainingDataError: fewer than three seeds.
    """
    seeds = sorted({run.seed for run in collection.runs})
    if len(seeds) < LEAST_SEEDS:
        raise TrainingDataError(
            f"the collection {collection.folder} has the seeds {seeds}; fitting, early stopping "
            f"and testing need one each, {LEAST_SEEDS} at least: collect more with --seeds"
        )
    by_seed = {seeds[-1]: TEST, seeds[-2]: VALIDATION}
    return [
        by_seed.get(run.seed, TRAIN) if run.split == TRAIN_SPLIT else TEST
        for run in collection.runs
    ]


def label(collection: Collection, measured: Sequence[Measured], spec: Spec) -> ExampleTable:
    """Label the questions of all runs.

    A scenario that is for testing only may share its accesses with one that is trained on; such
    questions are dropped.

    Args:
        collection: the runs.
        measured: of each, over the rule's horizon.
        spec: of the rule.

    Raises:
        UnknownNameError, SpecError: no such rule, or a value out of range.
        TrainingDataError: fewer than three seeds.
    """
    spec = RULES.resolve(spec)
    rule: Rule = RULES.build(spec)
    counts = [found.table.num_rows for found in measured]
    parts = parts_of(collection)
    fitted = {
        run.trace_id for run, part in zip(collection.runs, parts, strict=True) if part != TEST
    }
    shared = [
        part == TEST and run.trace_id in fitted
        for run, part in zip(collection.runs, parts, strict=True)
    ]
    table = pa.concat_tables(found.table for found in measured)
    part = np.repeat(np.array(parts, np.object_), counts)
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    leaking = np.repeat(np.array(shared, np.bool_), counts)
    judged = rule.judge(columns, part == TRAIN)
    dropped = np.where(leaking, TRAINED_ON, judged.dropped)
    kept = dropped == ""
    weight = np.where(kept, judged.weight, 0.0)
    of_train = weight[kept & (part == TRAIN)]
    # Without training examples there is nothing to fit, which is told elsewhere.
    weight /= of_train.mean() if of_train.size else 1.0

    def of_run(values: Sequence[Any]) -> pa.Array:
        return pa.array(np.repeat(np.array(values, np.object_), counts))

    runs = collection.runs
    made = {
        "run": of_run([run.id for run in runs]),
        "group": of_run([run.trace_id for run in runs]),
        "scenario": of_run([run.scenario for run in runs]),
        "schedule": of_run([run.schedule for run in runs]),
        "policy": of_run([found.policy for found in measured]),
        "seed": of_run([run.seed for run in runs]),
        **{name: table.column(name) for name in ("rank", "question", "minibatch", "replace")},
        "part": pa.array(part),
        **{name: table.column(name) for name in feature_names()},
        "label": pa.array((judged.gain > 0).astype(np.int8), mask=~kept),
        "weight": pa.array(weight),
        "gain": pa.array(judged.gain, mask=np.isnan(judged.gain)),
        "dropped": pa.array(dropped),
    }
    return ExampleTable(
        pa.table([made[name] for name in SCHEMA.names], schema=SCHEMA), spec, collection.digest()
    )
