"""Scenario fields as command-line options, built from :class:`rudder.scenario.Scenario` itself.

Names, help and defaults come from the fields, so that every command that takes a scenario offers
the same options and a new field appears in all of them.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection
from typing import Annotated, Any, Optional

import typer
from pydantic.fields import FieldInfo

from rudder.scenario import DRIFT, Scenario


def scenario_options(
    *, graph: bool = True, needed: bool = True, omit: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command one option per scenario field.

    The decorated function takes ``scenario``: a dict of the fields that were given on the command
    line, and only those, to be laid over what the command starts from. Its other parameters stay.

    >>> @scenario_options()
    ... def train(scenario: dict[str, Any], home: HomeDir = None) -> None:
    ...     run(Scenario.make(**scenario))

    Args:
        graph: the field ``graph`` is the first positional argument; else it is left out.
        needed: the graph must be given.
        omit: further fields to leave out.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function, eval_str=True).parameters
        fields = {
            name: _parameter(name, info)
            for name, info in Scenario.model_fields.items()
            if name != "graph" and name not in omit
        }
        if graph:
            fields = {"graph": _GRAPH if needed else _GRAPH.replace(default=None), **fields}

        @functools.wraps(function)
        def command(**given: Any) -> Any:
            values = {name: given.pop(name) for name in fields}
            return function(
                scenario={name: value for name, value in values.items() if value not in (None, [])},
                **given,
            )

        kept = [p.replace(kind=p.KEYWORD_ONLY) for name, p in own.items() if name != "scenario"]
        parameters = [*fields.values(), *kept]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def parse_fan_out(text: str) -> tuple[int, ...]:
    """``10,25`` -> ``(10, 25)``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of counts such as 10,25") from None


def parse_buffer(text: str) -> float | int:
    """A text with a point is a share of the halo (float), one without a count of rows (int)."""
    try:
        return float(text) if set(text) & set(".eE") else int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a share such as 0.25 nor a count such as 10000"
        ) from None


def parse_change(value: Callable[[str], Any]) -> Callable[[str], tuple[int, Any]]:
    """A parser of ``EPOCH=VALUE``: from that epoch on (epochs count from 0) the value holds."""

    def parse(text: str) -> tuple[int, Any]:
        epoch, _, new = text.partition("=")
        try:
            return int(epoch), value(new)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is no change such as 3=VALUE: from epoch 3 on VALUE holds"
            ) from None

    return parse


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "fan_out": (parse_fan_out, "N,N,…"),
    "buffer": (parse_buffer, "SHARE|COUNT"),
    "batch_size_at": (parse_change(int), "EPOCH=N"),
    "fan_out_at": (parse_change(parse_fan_out), "EPOCH=N,N,…"),
    "rate_at": (parse_change(float), "EPOCH=MBIT"),
}
_SCHEDULES = ("batch_size_at", "fan_out_at", "rate_at")
_PANELS = {
    "Buffer": ("policy", "fill", "buffer", "prefetch_depth", "mode"),
    "Cluster": ("parts", "partition_method", "trainers", "rate"),
    "Model and training": (
        "model", "layers", "hidden", "heads", "dropout", "lr", "fan_out", "batch_size", "epochs",
        "eval_every", "seed",
    ),
    "Drift (changes during the run)": DRIFT,
}  # fmt: skip
_PANEL_OF = {field: panel for panel, fields in _PANELS.items() for field in fields}

_GRAPH = inspect.Parameter(
    "graph",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="GRAPH", help=Scenario.model_fields["graph"].description),
    ],
)


def _parameter(name: str, info: FieldInfo) -> inspect.Parameter:
    parser, metavar = _PARSERS.get(name, (None, None))
    repeated = name in _SCHEDULES
    option = typer.Option(
        "--" + name.replace("_", "-"),
        help=f"{info.description}; may be given several times" if repeated else info.description,
        show_default=False if repeated else _shown(info.default),
        rich_help_panel=_PANEL_OF.get(name, "Scenario"),
        metavar=metavar,
        parser=parser,
    )
    # With a parser Typer takes any class as the type; the scenario validates the value.
    kind: Any = str if parser else _type(info.annotation)
    if repeated:
        kind = list[kind]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[kind], option],  # noqa: UP045
    )


def _type(annotation: Any) -> Any:
    if annotation in (int, float, str, bool) or typing.get_origin(annotation) is typing.Literal:
        return annotation
    raise TypeError(f"no command-line form for a scenario field of type {annotation}")


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
