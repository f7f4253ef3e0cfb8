"""Specs: what to build, as data. ``name:key=value,…`` in text, ``{"name", "params"}`` in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rudder.errors import SpecError

_OPENING, _CLOSING = "[{(", "]})"


@dataclass(frozen=True)
class Spec:
    """A registry name and its parameters; JSON values only, so that it travels and compares.

    >>> Spec.parse("fixed:interval=16")
    Spec(name='fixed', params={'interval': 16})
    >>> str(Spec.parse("fixed:interval=16"))
    'fixed:interval=16'
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"a spec needs a name, found {self.name!r}")
        try:
            # A copy by way of JSON: refuses callables and objects, detaches from the caller's dict.
            object.__setattr__(self, "params", json.loads(json.dumps(dict(self.params))))
        except (TypeError, ValueError) as error:
            raise SpecError(
                f"parameters of {self.name!r} must be JSON values "
                f"(numbers, text, true/false, lists): {error}"
            ) from error

    def __hash__(self) -> int:
        return hash(self.to_json())

    @classmethod
    def parse(cls, text: str | Spec | Mapping[str, Any]) -> Spec:
        """Read ``name`` or ``name:key=value,…``; a spec or its JSON mapping passes through.

        Values are JSON where they parse as JSON (``16``, ``0.5``, ``true``, ``[1,2]``,
        ``"a,b"``), else plain text. Commas inside brackets and quotes do not split.
        """
        if isinstance(text, Spec):
            return text
        if isinstance(text, Mapping):
            unknown = set(text) - {"name", "params"}
            if unknown or "name" not in text:
                raise SpecError(f"a spec has the keys name and params, found {sorted(text)}")
            return cls(text["name"], text.get("params", {}))
        name, colon, rest = text.strip().partition(":")
        if not name:
            raise SpecError(f"spec {text!r} has no name; write NAME or NAME:key=value,…")
        params: dict[str, Any] = {}
        if colon:
            for item in _split(rest, text):
                key, equals, value = item.partition("=")
                key = key.strip()
                if not equals or not key:
                    raise SpecError(f"spec {text!r}: {item!r} is not key=value")
                if key in params:
                    raise SpecError(f"spec {text!r}: parameter {key!r} is given twice")
                params[key] = _value(value.strip())
        return cls(name, params)

    def with_defaults(self, defaults: Mapping[str, Any]) -> Spec:
        """The same spec with every default spelled out."""
        return Spec(self.name, {**defaults, **self.params})

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "params": dict(self.params)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        return cls.parse(json.loads(text))

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return self.name + ":" + ",".join(f"{k}={_text(v)}" for k, v in self.params.items())


def _split(text: str, whole: str) -> Iterator[str]:
    depth, quote, start = 0, "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth or quote:
        raise SpecError(f"spec {whole!r}: a bracket or quote is not closed")
    yield text[start:]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    if isinstance(value, str) and _value(value) == value and not set(value) & set(",\"'[]{}()"):
        return value
    return json.dumps(value, separators=(",", ":"))
