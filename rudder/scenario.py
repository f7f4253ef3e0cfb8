"""A scenario: everything that fixes a run, but the controller."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rudder.errors import ScenarioError

Mode = Literal["async", "sync"]
Fill = Literal["empty", "degree", "random"]


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
    fan_out: tuple[Annotated[int, Field(ge=-1)], ...] = Field(
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

    def model_post_init(self, context: Any, /) -> None:
        if len(self.fan_out) != self.layers:
            raise ValueError(
                f"fan_out has {len(self.fan_out)} counts for {self.layers} layers; give one each"
            )

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
        """SHA-256 over the fields, 16 hex digits: equal scenarios, equal digest."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


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
