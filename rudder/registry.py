"""One registry class for every kind of plug-in.

A registration is a name and a lazy ``"module:Attribute"`` target. Nothing is imported until the
target is built, so that listing names stays light. Built-ins and third parties register alike:
see :mod:`rudder.plugins`.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
import keyword
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rudder.errors import (
    DuplicateNameError,
    PluginError,
    RudderError,
    SpecError,
    UnknownNameError,
)
from rudder.spec import Spec, check_name


@dataclass(frozen=True)
class Entry:
    """One registered name.

    Attributes:
        name: the name that users write.
        target: ``"module:Attribute"`` of what is called with the parameters.
        summary: one line for listings.
        params: parameters with their defaults, laid under what the user gives.
        fields: facts of this kind that a listing needs without importing the target
            (for a controller: the scenario fields that it fixes).
        origin: ``"file:line"`` of the registration, or the path of its TOML spec.
    """

    name: str
    target: str
    summary: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""


class Registry:
    """Names of one kind, and how to build what they name.

    Args:
        kind: what is registered, in the singular, for messages ("controller").
        base: ``"module:Class"`` that every target must derive from (classes) or return
            (functions); checked when built, not when registered.
    """

    def __init__(self, kind: str, base: str | None = None) -> None:
        self.kind = kind
        self.base = base
        self._entries: dict[str, Entry] = {}
        self._loader: Callable[[], None] | None = None

    def on_first_use(self, loader: Callable[[], None]) -> None:
        """Call ``loader`` before every look-up: it registers the plug-ins the first time."""
        self._loader = loader

    def register(
        self,
        name: str,
        target: str | Callable[..., Any],
        *,
        summary: str = "",
        params: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        origin: str | None = None,
    ) -> Entry:
        """Add a name. ``target`` is ``"module:Attribute"``, or a class or function of a module.

        Raises:
            DuplicateNameError: the name is taken; names both places.
            SpecError: the target is not importable text, or the name cannot stand in a spec.
        """
        check_name(f"a {self.kind}", name)
        if origin is None:
            caller = sys._getframe(1)
            origin = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        if not isinstance(target, str):
            if "<" in target.__qualname__:
                raise SpecError(
                    f"{self.kind} {name!r} at {origin}: {target.__qualname__} lives inside a "
                    "function; define it at the top of a module"
                )
            summary = summary or (inspect.getdoc(target) or "").partition("\n")[0]
            target = f"{target.__module__}:{target.__qualname__}"
        if target.count(":") != 1:
            raise SpecError(
                f"{self.kind} {name!r} at {origin}: target {target!r} is not 'module:Attribute'"
            )
        if name in self._entries:
            raise DuplicateNameError(
                f"{self.kind} {name!r} is registered twice: at {self._entries[name].origin} "
                f"and at {origin}; rename one of them"
            )
        entry = Entry(name, target, summary, dict(params or {}), dict(fields or {}), origin)
        self._entries[name] = entry
        return entry

    def register_toml(self, path: Path) -> Entry:
        """Register the spec in a TOML file: ``target``, ``summary``, ``[params]``, ``[fields]``.

        The name is the file's stem.
        """
        from rudder.toml import read_toml

        data = read_toml(path)
        unknown = set(data) - {"target", "summary", "params", "fields"}
        if unknown or "target" not in data:
            raise SpecError(
                f"{path}: a spec file needs target and may have summary, params and fields; "
                f"found {sorted(data)}"
            )
        for key, kind in {"target": str, "summary": str, "params": dict, "fields": dict}.items():
            if not isinstance(data.get(key, kind()), kind):
                what = "text" if kind is str else "a table"
                raise SpecError(f"{path}: {key} must be {what}, found {data[key]!r}")
        return self.register(path.stem, origin=str(path), **data)

    def names(self, pattern: str = "*") -> list[str]:
        """Registered names in order of name; ``pattern`` may hold ``*`` and ``?``."""
        self._load()
        return sorted(n for n in self._entries if fnmatch.fnmatchcase(n, pattern))

    def __iter__(self) -> Iterator[Entry]:
        return (self._entries[name] for name in self.names())

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._entries

    def entry(self, name: str) -> Entry:
        """The entry of a name.

        Raises:
            UnknownNameError: with the nearest match and the list of names.
        """
        self._load()
        if name in self._entries:
            return self._entries[name]
        known = self.names()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownNameError(
            f"no {self.kind} is named {name!r}{hint} Known: {', '.join(known) or 'none'}."
        )

    def origin(self, name: str) -> str:
        """``file:line`` or TOML path where the name was registered."""
        return self.entry(name).origin

    def resolve(self, spec: str | Spec | Mapping[str, Any]) -> Spec:
        """Parse a spec, check its name, and spell out the defaults of its entry.

        Raises:
            UnknownNameError, SpecError: unknown name, text that does not parse.
        """
        parsed = Spec.parse(spec)
        return parsed.with_defaults(self.entry(parsed.name).params)

    def target(self, name: str) -> Any:
        """Import and return the class or function behind a name.

        Raises:
            PluginError: it cannot be imported, or is a class that does not derive from ``base``.
        """
        entry = self.entry(name)
        found = _import(entry, self.kind)
        if self.base is not None and inspect.isclass(found):
            base = _attribute(self.base)
            if not issubclass(found, base):
                raise PluginError(
                    f"{self.kind} {name!r} ({entry.origin}): {entry.target} is no "
                    f"subclass of {self.base}"
                )
        return found

    def build(self, spec: str | Spec | Mapping[str, Any], **context: Any) -> Any:
        """Build what a spec names, from its parameters and the caller's ``context`` arguments.

        A parameter that is a Python keyword (``from``) reaches the target's ``from_``.

        Raises:
            SpecError: a parameter that the target does not take, or a value that it refuses.
        """
        resolved = self.resolve(spec)
        target = self.target(resolved.name)
        self.check_params(resolved, target, context)
        params = {f"{k}_" if keyword.iskeyword(k) else k: v for k, v in resolved.params.items()}
        try:
            built = target(**params, **context)
        except (TypeError, ValueError) as error:
            raise SpecError(f"{self.kind} {str(resolved)!r}: {error}") from error
        if self.base is not None and not isinstance(built, _attribute(self.base)):
            raise PluginError(
                f"{self.kind} {resolved.name!r} ({self.origin(resolved.name)}): "
                f"{self.entry(resolved.name).target} returned a {type(built).__name__}, "
                f"no {self.base}"
            )
        return built

    def check(self, spec: str | Spec | Mapping[str, Any], **context: Any) -> Spec:
        """Resolve a spec and check its parameters against the target, building nothing."""
        resolved = self.resolve(spec)
        self.check_params(resolved, self.target(resolved.name), context)
        return resolved

    def check_params(self, spec: Spec, target: Any, context: Mapping[str, Any]) -> None:
        """Check the names and types of a spec's parameters against what ``target`` takes.

        Types are checked where the annotation is made of int, float, bool, str and None.

        Raises:
            SpecError: names the parameter that is unknown, missing or of another type.
        """
        signature = inspect.signature(target)
        takes = [
            p
            for p in signature.parameters.values()
            if p.name not in context and p.kind is not p.VAR_POSITIONAL
        ]
        if any(p.kind is p.VAR_KEYWORD for p in takes):
            return
        names = [_written(p.name) for p in takes]
        for key in spec.params:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else "."
                raise SpecError(
                    f"{self.kind} {spec.name!r} has no parameter {key!r}{hint} "
                    f"It takes: {', '.join(names) or 'none'}."
                )
        missing = [
            _written(p.name)
            for p in takes
            if p.default is p.empty and _written(p.name) not in spec.params
        ]
        if missing:
            raise SpecError(
                f"{self.kind} {spec.name!r} needs {', '.join(missing)}; "
                f"write {spec.name}:{missing[0]}=…"
            )
        for key, kinds in _plain_kinds(target).items():
            value = spec.params.get(_written(key))
            fits = type(value) in kinds or (type(value) is int and float in kinds)
            if _written(key) in spec.params and not fits:
                wanted = " or ".join(_KINDS[kind] for kind in _KINDS if kind in kinds)
                raise SpecError(
                    f"{self.kind} {str(spec)!r}: {_written(key)} must be {wanted}, found {value!r}"
                )

    def _load(self) -> None:
        if self._loader is not None:
            self._loader()


def _written(parameter: str) -> str:
    """What users write for a parameter: ``from_`` is ``from``."""
    bare = parameter.removesuffix("_")
    return bare if keyword.iskeyword(bare) else parameter


_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text (in quotes if it looks like something else)",
    type(None): "null",
}


def _plain_kinds(target: Any) -> dict[str, frozenset[type]]:
    """The types that each parameter takes, for parameters that take plain types only."""
    function = target.__init__ if inspect.isclass(target) else target
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # annotations that only a type checker can resolve
        return {}
    kinds = {
        name: frozenset(typing.get_args(hint) or (hint,))
        for name, hint in hints.items()
        if name != "return" and typing.get_origin(hint) in (None, typing.Union, types.UnionType)
    }
    return {name: found for name, found in kinds.items() if found <= set(_KINDS)}


def _attribute(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _import(entry: Entry, kind: str) -> Any:
    try:
        return _attribute(entry.target)
    except RudderError:
        raise
    except Exception as error:
        raise PluginError(
            f"{kind} {entry.name!r} ({entry.origin}) cannot be loaded from {entry.target}: "
            f"{type(error).__name__}: {error}"
        ) from error
