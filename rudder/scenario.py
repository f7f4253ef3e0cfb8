"""A scenario: everything that fixes a run, but the controller."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
)

from rudder.errors import ScenarioError

Mode = Literal["async", "sync"]
Fill = Literal["empty", "degree", "random"]
SeedOrder = Literal["uniform", "communities", "degree"]
DRIFT = ("seed_order", "phases", "batch_size_at", "fan_out_at", "rate_at")
"""The fields that make the access pattern change during a run."""

_Value = TypeVar("_Value")


def _schedule(value: Any) -> Any:
    """``{"3": 400}`` or pairs -> pairs in order of epoch."""
    try:
        pairs = [(int(epoch), new) for epoch, new in dict(value).items()]
        given = len(value)
    except (TypeError, ValueError):
        raise ValueError("must map epochs to values, such as {3: 400}") from None
    if len({epoch for epoch, _ in pairs}) != given:
        raise ValueError("gives two values for one epoch")
    if any(epoch < 1 for epoch, _ in pairs):
        raise ValueError("changes come at epoch 1 or later; epochs count from 0")
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def _as_mapping(pairs: Iterable[tuple[int, Any]]) -> dict[str, Any]:
    return {str(epoch): new for epoch, new in pairs}


Schedule = Annotated[
    tuple[tuple[int, _Value], ...], BeforeValidator(_schedule), PlainSerializer(_as_mapping)
]
"""Values that hold from an epoch on: given and written as ``{"3": 400}``, kept as pairs."""

_FanOut = tuple[Annotated[int, Field(ge=-1)], ...]


class Scenario(BaseModel):
    """One run's graph, model, cluster and buffer. Defaults are those of every command.

    Raises:
        ScenarioError: by :meth:`make`; one line per field that is out of range.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False
    )

    graph: str = Field("debian", min_length=1, description="dataset spec, NAME:key=value,…")
    model: Literal["sage", "gat"] = Field("sage", description="GNN: GraphSAGE (mean) or GAT")
    layers: int = Field(2, ge=1, le=8, description="GNN layers; one fan-out each")
    hidden: int = Field(64, ge=1, description="hidden width")
    heads: int = Field(4, ge=1, description="attention heads (gat)")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout between layers")
    lr: float = Field(0.003, gt=0, description="Adam learning rate")
    fan_out: _FanOut = Field(
        (10, 25), description="neighbours per layer, input side first as in DGL; -1 = all"
    )
    batch_size: int = Field(200, ge=1, description="seeds per minibatch and trainer")
    epochs: int = Field(5, ge=1, description="epochs")
    eval_every: int = Field(0, ge=0, description="validate every so many epochs; 0 = at the end")
    parts: int = Field(4, ge=1, description="partitions = hosts")
    partition_method: str = Field("metis", min_length=1, description="partitioner spec")
    trainers: int = Field(1, ge=1, description="trainers per host")
    policy: str = Field("score", min_length=1, description="replacement policy spec")
    fill: Fill = Field("degree", description="what the buffer holds at the start")
    buffer: float | int = Field(
        0.25, description="capacity: a float is a share of the halo nodes, an int a count of rows"
    )
    prefetch_depth: int = Field(2, ge=0, le=64, description="pulls run so far ahead; 0 = inline")
    rate: float = Field(0.0, ge=0, description="Mbit/s each way at each host; 0 = unshaped")
    seed: int = Field(0, ge=0, lt=2**31, description="seeds, initial model and controller")
    mode: Mode = Field("async", description="does a pull wait for the open question?")
    seed_order: SeedOrder = Field(
        "uniform",
        description="order of an epoch's seeds: shuffled, or group by group, shuffled inside: "
        "communities of the partition, or bands of degree from the highest down",
    )
    phases: int = Field(8, ge=2, le=4096, description="groups of seeds (not for uniform)")
    batch_size_at: Schedule[Annotated[int, Field(ge=1)]] = Field(
        (), description="seeds per minibatch from an epoch on"
    )
    fan_out_at: Schedule[_FanOut] = Field((), description="neighbours per layer from an epoch on")
    rate_at: Schedule[Annotated[float, Field(ge=0)]] = Field(
        (), description="Mbit/s from an epoch on"
    )

    @field_validator("buffer", mode="before")
    @classmethod
    def _buffer(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("must be a share such as 0.25 or a count of rows such as 10000")
        if value < 0 or (isinstance(value, float) and not value <= 1):
            raise ValueError("a share lies in 0..1 (write a count of rows without a point)")
        return value

    @field_validator("fan_out")
    @classmethod
    def _fan_out(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or 0 in value:
            raise ValueError("needs one count per layer, -1 (all) or above 0")
        return value

    @field_validator("fan_out_at")
    @classmethod
    def _fan_out_at(
        cls, value: tuple[tuple[int, tuple[int, ...]], ...]
    ) -> tuple[tuple[int, tuple[int, ...]], ...]:
        for _, fan_out in value:
            cls._fan_out(fan_out)
        return value

    def model_post_init(self, context: Any, /) -> None:
        fan_outs = [("fan_out", self.fan_out), *(("fan_out_at", f) for _, f in self.fan_out_at)]
        for name, counts in fan_outs:
            if len(counts) != self.layers:
                raise ValueError(
                    f"{name} has {len(counts)} counts for {self.layers} layers; give one each"
                )
        for name in ("batch_size_at", "fan_out_at", "rate_at"):
            late = [epoch for epoch, _ in getattr(self, name) if epoch >= self.epochs]
            if late:
                raise ValueError(
                    f"{name} changes at epoch {late[0]}, but the last of {self.epochs} epochs is "
                    f"{self.epochs - 1}"
                )

    def batch_size_of(self, epoch: int) -> int:
        """Seeds per minibatch in an epoch."""
        return _at(epoch, self.batch_size, self.batch_size_at)

    def fan_out_of(self, epoch: int) -> tuple[int, ...]:
        """Neighbours per layer in an epoch."""
        return _at(epoch, self.fan_out, self.fan_out_at)

    def rate_of(self, epoch: int) -> float:
        """Mbit/s each way at each host in an epoch."""
        return _at(epoch, self.rate, self.rate_at)

    @classmethod
    def make(cls, **values: Any) -> Scenario:
        """Build a scenario; the errors of all fields come as one :class:`ScenarioError`."""
        try:
            return cls(**values)
        except (ValidationError, ValueError) as error:
            raise ScenarioError(_describe(error)) from error

    def change(self, **values: Any) -> Scenario:
        """The same scenario with some fields changed, validated anew."""
        return Scenario.make(**{**self.model_dump(), **values})

    def digest(self) -> str:
        """SHA-256 over the fields, 16 hex digits: equal scenarios, equal digest.

        Drift that is not asked for is left out, so that it does not change older digests.
        """
        fields = type(self).model_fields
        unused = {name for name in DRIFT if getattr(self, name) == fields[name].default}
        return hashlib.sha256(self.model_dump_json(exclude=unused).encode()).hexdigest()[:16]


def _at(epoch: int, first: _Value, changes: Iterable[tuple[int, _Value]]) -> _Value:
    """The value that holds in ``epoch``; ``changes`` ascend."""
    value = first
    for start, new in changes:
        if start <= epoch:
            value = new
    return value


def _describe(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for item in error.errors():
        where = ".".join(str(p) for p in item["loc"]) or "scenario"
        found = item.get("input")
        what = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            what = f"no such field; there are {', '.join(Scenario.model_fields)}"
        lines.append(f"{where} = {found!r}: {what}" if item["loc"] else what)
    return "; ".join(lines)
