"""Specs: what to build, as data. ``name:key=value,…`` in text, ``{"name", "params"}`` in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rudder.errors import SpecError

_OPENING, _CLOSING = "[{(", "]})"
_QUOTE = '"'
_RESERVED_IN_NAMES = set(":,=/" + _QUOTE + _OPENING + _CLOSING)


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
        check_name("a spec", self.name)
        try:
            # A copy by way of JSON: refuses callables, objects and NaN (which would not equal
            # itself), and detaches from the caller's dict.
            params = json.loads(json.dumps(dict(self.params), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise SpecError(
                f"parameters of {self.name!r} must be JSON values "
                f"(finite numbers, text, true/false, lists): {error}"
            ) from error
        for key in params:
            check_name(f"a parameter of {self.name!r}", key)
        object.__setattr__(self, "params", params)

    def __eq__(self, other: object) -> bool:
        # By JSON, as the hash: 1, 1.0 and true are different parameters.
        return isinstance(other, Spec) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    @classmethod
    def parse(cls, text: str | Spec | Mapping[str, Any]) -> Spec:
        """Read ``name`` or ``name:key=value,…``; a spec or its JSON mapping passes through.

        Values are JSON where they parse as JSON (``16``, ``0.5``, ``true``, ``[1,2]``,
        ``"a,b"``), else plain text. Commas inside brackets and double quotes do not split.

        Raises:
            SpecError: says which part does not parse.
        """
        if isinstance(text, Spec):
            return text
        if isinstance(text, Mapping):
            unknown = set(text) - {"name", "params"}
            if unknown or "name" not in text:
                raise SpecError(
                    f"a spec has the keys name and params, found {sorted(map(str, text))}"
                )
            return cls(text["name"], text.get("params", {}))
        if not isinstance(text, str):
            raise SpecError(f"a spec is text or an object with name and params, found {text!r}")
        name, colon, rest = text.strip().partition(":")
        if not name:
            raise SpecError(f"spec {text!r} has no name; write NAME or NAME:key=value,…")
        params: dict[str, Any] = {}
        if colon:
            for item in _split(rest, text):
                key, equals, value = item.partition("=")
                key = key.strip()
                if not equals:
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
        """Read what :meth:`to_json` wrote.

        Raises:
            SpecError: it is no JSON, or none of a spec.
        """
        try:
            return cls.parse(json.loads(text))
        except json.JSONDecodeError as error:
            raise SpecError(f"spec {text!r} is not JSON: {error}") from error

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return self.name + ":" + ",".join(f"{k}={_text(v)}" for k, v in self.params.items())


def split_specs(text: str) -> list[str]:
    """The specs of ``a,b:key=value,key=value,c``, as text; a part ``key=value`` goes on with the
    spec before it.

    Raises:
        SpecError: a bracket or quote that is not closed.
    """
    found: list[str] = []
    for part in _split(text, text):
        head, equals, _ = part.partition("=")
        if equals and ":" not in head and found:
            found[-1] += f",{part}"
        elif part.strip():
            found.append(part.strip())
    return found


def check_name(what: str, name: object) -> None:
    """Refuse a name that could not be told apart in ``name:key=value,…``.

    Raises:
        SpecError: not text, empty, or with a reserved character or white space.
    """
    if not isinstance(name, str) or not name:
        raise SpecError(f"{what} needs a name, found {name!r}")
    if set(name) & _RESERVED_IN_NAMES or name.split() != [name]:
        reserved = " ".join(sorted(_RESERVED_IN_NAMES))
        raise SpecError(f"{what} cannot be named {name!r}: no spaces and none of {reserved}")


def _split(text: str, whole: str) -> Iterator[str]:
    depth, start = 0, 0
    quoted = escaped = False
    for position, char in enumerate(text):
        if quoted:
            quoted = escaped or char != _QUOTE
            escaped = not escaped and char == "\\"
        elif char == _QUOTE:
            quoted = True
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth or quoted:
        raise SpecError(f"spec {whole!r}: a bracket or quote is not closed")
    yield text[start:]


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _text(value: Any) -> str:
    if isinstance(value, str) and value == value.strip() and _value(value) == value:
        special = set("," + _QUOTE + _OPENING + _CLOSING)
        if not set(value) & special:
            return value
    return json.dumps(value, separators=(",", ":"))
