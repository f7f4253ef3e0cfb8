"""What a controller sees: static facts, one window, and the history of its own decisions.

Every field carries its unit in the metadata. :data:`FEATURES` turns an observation into the one
feature vector that classifiers are trained on and asked with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rudder.decision import Decision, Effect


def _unit(unit: str, **kwargs: Any) -> Any:
    return field(metadata={"unit": unit}, **kwargs)


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change during a run, of one trainer."""

    graph: str = _unit("name")
    nodes: int = _unit("nodes of the graph")
    edges: int = _unit("edges of the graph")
    feature_bytes: int = _unit("bytes per feature row")
    parts: int = _unit("partitions")
    part_nodes: int = _unit("nodes owned by this trainer's partition")
    halo_nodes: int = _unit("1-hop remote nodes of this partition")
    remote_nodes: int = _unit("nodes owned by other partitions")
    batch_size: int = _unit("seeds per minibatch")
    fan_out: tuple[int, ...] = _unit("neighbours per layer, input side first")
    capacity: int = _unit("rows of the persistent buffer")
    trainers: int = _unit("trainers in the run")
    epochs: int = _unit("epochs; 0 = not known")
    total_minibatches: int = _unit("minibatches of this trainer over the run; 0 = not known")
    policy: str = _unit("replacement policy spec")


@dataclass(frozen=True, slots=True)
class Task:
    """What a controller is told once, before its first observation."""

    facts: Facts
    seed: int = _unit("seed of this run")
    rank: int = _unit("global rank of this trainer")

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Task:
        """The inverse of :meth:`to_dict`, also after JSON made lists of the tuples."""
        return cls(_facts(values["facts"]), values["seed"], values["rank"])


def _facts(values: Mapping[str, Any]) -> Facts:
    return Facts(**{**values, "fan_out": tuple(values["fan_out"])})


@dataclass(frozen=True, slots=True)
class Window:
    """What happened since the previous observation. Counts are sums over the window."""

    minibatches: int = _unit("minibatches")
    hit_rate: float = _unit("share 0..1")
    hit_rate_change: float = _unit("share, against the window before; 0 for the first")
    remote_sampled: int = _unit("remote nodes")
    fetched: int = _unit("rows fetched over the network")
    bytes_fetched: int = _unit("bytes of feature payload")
    communication_change: float = _unit("relative change of rows fetched per minibatch")
    replaced: int = _unit("rows replaced")
    stale_share: float = _unit("share of the capacity, 0..1, at the end")
    occupancy: float = _unit("share of the capacity, 0..1, at the end")
    sample_s: float = _unit("seconds sampling")
    fetch_s: float = _unit("seconds pulling rows")
    compute_s: float = _unit("seconds of forward, backward and step")
    stall_s: float = _unit("seconds that training waited for its minibatch")


@dataclass(frozen=True, slots=True)
class Past:
    """One earlier decision and what followed, when enough minibatches have passed to say so."""

    minibatch: int = _unit("step, from 0, of the minibatch at which it was applied")
    decision: Decision = _unit("the decision")
    replaced: int = _unit("rows replaced")
    window: int = _unit("minibatches before and after that were compared; 0 = not settled yet")
    hit_rate_change: float = _unit("share, after against before")
    communication_change: float = _unit("relative change of rows fetched per minibatch")
    hits_effect: Effect | None = _unit("class of the change of %-Hits; None = not settled")
    communication_effect: Effect | None = _unit("class of the change of communication")
    reward: float = _unit("bytes saved minus bytes spent")


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a controller may look at.

    Attributes:
        facts: what does not change during the run.
        index: number of this observation, from 0.
        minibatch: minibatches pulled by this trainer so far (the next one has this index, from 0).
        epoch: epoch of the last pulled minibatch.
        progress: share of the run's minibatches that have been pulled, 0..1; 0 = not known.
        window: what happened since the previous observation.
        history: the last decisions, oldest first.
        modelled_seconds: the seconds come from a time model (replay), not from a clock.
    """

    facts: Facts
    index: int
    minibatch: int
    epoch: int
    progress: float
    window: Window
    history: tuple[Past, ...] = ()
    modelled_seconds: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Observation:
        """The inverse of :meth:`to_dict`, also after JSON made lists of the tuples."""
        history = (Past(**{**p, "decision": Decision(**p["decision"])}) for p in values["history"])
        return cls(
            **{
                **values,
                "facts": _facts(values["facts"]),
                "window": Window(**values["window"]),
                "history": tuple(history),
            }
        )


@dataclass(frozen=True)
class Feature:
    """One column of the feature vector."""

    name: str
    unit: str
    value: Callable[[Observation], float]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _last(observation: Observation, value: Callable[[Past], float]) -> float:
    return value(observation.history[-1]) if observation.history else 0.0


def _since_replacement(o: Observation) -> float:
    for past in reversed(o.history):
        if past.decision.replace:
            return _share(o.minibatch - past.minibatch, o.facts.total_minibatches)
    return o.progress


SCHEMA_VERSION = 1
FEATURES: tuple[Feature, ...] = (
    Feature("hit_rate", "share", lambda o: o.window.hit_rate),
    Feature("hit_rate_change", "share", lambda o: o.window.hit_rate_change),
    Feature(
        "fetched_share",
        "rows fetched per remote node sampled",
        lambda o: _share(o.window.fetched, o.window.remote_sampled),
    ),
    Feature("communication_change", "relative change", lambda o: o.window.communication_change),
    Feature(
        "remote_per_capacity",
        "remote nodes sampled per minibatch and buffer row",
        lambda o: _share(_share(o.window.remote_sampled, o.window.minibatches), o.facts.capacity),
    ),
    Feature(
        "replaced_share",
        "rows replaced per buffer row",
        lambda o: _share(o.window.replaced, o.facts.capacity),
    ),
    Feature("stale_share", "share", lambda o: o.window.stale_share),
    Feature("occupancy", "share", lambda o: o.window.occupancy),
    Feature(
        "fetch_time_share",
        "share of sampling, fetching and computing seconds",
        lambda o: _share(
            o.window.fetch_s, o.window.sample_s + o.window.fetch_s + o.window.compute_s
        ),
    ),
    Feature(
        "stall_time_share",
        "stalled seconds per computing and stalled second",
        lambda o: _share(o.window.stall_s, o.window.compute_s + o.window.stall_s),
    ),
    Feature("progress", "share", lambda o: o.progress),
    Feature("since_replacement", "share of the run's minibatches", _since_replacement),
    Feature("last_replaced", "0 or 1", lambda o: _last(o, lambda p: float(p.decision.replace))),
    Feature("last_hit_rate_change", "share", lambda o: _last(o, lambda p: p.hit_rate_change)),
    Feature(
        "last_communication_change",
        "relative change",
        lambda o: _last(o, lambda p: p.communication_change),
    ),
    Feature(
        "capacity_per_halo",
        "buffer rows per halo node",
        lambda o: _share(o.facts.capacity, o.facts.halo_nodes),
    ),
    Feature(
        "halo_per_part",
        "halo nodes per owned node",
        lambda o: _share(o.facts.halo_nodes, o.facts.part_nodes),
    ),
    Feature("mean_degree", "edges per node", lambda o: _share(o.facts.edges, o.facts.nodes)),
    Feature(
        "batch_per_part",
        "seeds per owned node",
        lambda o: _share(o.facts.batch_size, o.facts.part_nodes),
    ),
    Feature("window_minibatches", "minibatches", lambda o: float(o.window.minibatches)),
)


def feature_names() -> tuple[str, ...]:
    """Names of the feature vector's columns, in order."""
    return tuple(f.name for f in FEATURES)


def feature_vector(observation: Observation) -> list[float]:
    """The feature vector of an observation: one float per name of :func:`feature_names`."""
    return [float(f.value(observation)) for f in FEATURES]
