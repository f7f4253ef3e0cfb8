"""What controllers are checked on: tasks, a plausible episode, and observations at the edge."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from rudder.controller import Controller
from rudder.decision import Decision
from rudder.observation import Facts, Observation, Past, Task, Window
from rudder.result import MinibatchRow
from rudder.steering.asker import InlineAsker
from rudder.steering.loop import Steering

LENGTH = 16
"""Observations in an episode: the first has no history, the last eight a full one."""

FACTS = Facts(
    graph="episode",
    nodes=100_000,
    edges=1_500_000,
    feature_bytes=512,
    parts=4,
    part_nodes=25_000,
    halo_nodes=30_000,
    remote_nodes=75_000,
    batch_size=200,
    fan_out=(10, 25),
    capacity=7_500,
    trainers=4,
    epochs=5,
    total_minibatches=200,
    policy="score",
)


def task(seed: int = 0, rank: int = 0) -> Task:
    """A task of ordinary size."""
    return Task(FACTS, seed=seed, rank=rank)


class _Script(Controller):
    """Records what it is shown, and replaces every third time."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def _decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        replace = observation.index % 3 == 2
        return Decision(replace=replace, expected_hits="increase" if replace else "stagnant")


def episode() -> list[Observation]:
    """Observations of a made-up run, by the very code that makes them in a real one.

    %-Hits sinks between replacements, volumes and seconds vary; the same each time.
    """
    draw = random.Random(20)
    script = _Script()
    steering = Steering(InlineAsker(script, clock=lambda: 0.0), task(), mode="sync")
    age = 0
    for step in range(LENGTH):
        decision = steering.before_pull(step).decision
        replace = decision is not None and decision.replace
        age = 0 if replace else age + 1
        sampled = draw.randrange(4_000, 6_000)
        hits = int(sampled * max(0.1, draw.uniform(0.55, 0.65) - 0.05 * age))
        steering.after_pull(
            MinibatchRow(
                rank=0,
                epoch=step // 40,
                step=step,
                seeds=200,
                local=9_000,
                remote_sampled=sampled,
                hits=hits,
                misses=sampled - hits,
                replaced=900 if replace else 0,
                fetched=sampled - hits + (150 if replace else 0),
                stale_share=min(1.0, 0.15 * age),
                occupancy=1.0,
                sample_s=draw.uniform(0.01, 0.02),
                fetch_s=draw.uniform(0.02, 0.05),
            )
        )
        steering.trained(step, compute_s=draw.uniform(0.02, 0.03), stall_s=draw.uniform(0, 0.02))
    steering.close()
    return script.seen


def extremes() -> Iterator[tuple[str, Observation]]:
    """Observations at the edge of what can happen, each with a name."""
    ordinary = episode()[-1]
    facts, window = ordinary.facts, ordinary.window
    nothing = {f.name: type(getattr(window, f.name))(0) for f in dataclasses.fields(Window)}
    idle = Window(**{**nothing, "minibatches": 1})
    yield "no remote node was sampled", dataclasses.replace(ordinary, window=idle, history=())
    yield (
        "there is no buffer",
        dataclasses.replace(
            ordinary,
            facts=dataclasses.replace(facts, capacity=0),
            window=dataclasses.replace(window, hit_rate=0.0, stale_share=0.0, occupancy=0.0),
        ),
    )
    yield (
        "one part, no remote nodes, an unknown end",
        Observation(
            facts=dataclasses.replace(
                facts, parts=1, halo_nodes=0, remote_nodes=0, capacity=0, trainers=1,
                epochs=0, total_minibatches=0,
            ),
            index=0, minibatch=1, epoch=0, progress=0.0, window=idle,
        ),
    )  # fmt: skip
    for name, rate, change in (("every", 1.0, 1.0), ("no", 0.0, -1.0)):
        shown = dataclasses.replace(
            window, hit_rate=rate, hit_rate_change=change, stale_share=rate,
            fetched=0 if rate else window.remote_sampled, communication_change=-change,
        )  # fmt: skip
        yield f"{name} remote node is a hit", dataclasses.replace(ordinary, window=shown)
    huge = 2**62
    yield (
        "counts near the end of 64 bits",
        dataclasses.replace(
            ordinary,
            facts=dataclasses.replace(facts, nodes=huge, edges=huge, total_minibatches=huge),
            minibatch=huge - 1,
            index=huge // 2,
            epoch=2**31 - 1,
            window=dataclasses.replace(
                window, minibatches=huge, remote_sampled=huge, fetched=huge, bytes_fetched=huge,
                communication_change=1e18, fetch_s=1e9, stall_s=1e9,
            ),
        ),
    )  # fmt: skip
    yield "the end of the run", dataclasses.replace(ordinary, progress=1.0, minibatch=200)
    unsettled = Past(
        minibatch=1, decision=Decision(replace=True), replaced=0, window=0, hit_rate_change=0.0,
        communication_change=0.0, hits_effect=None, communication_effect=None, reward=0.0,
    )  # fmt: skip
    yield "nothing has settled", dataclasses.replace(ordinary, history=(unsettled,) * 8)
