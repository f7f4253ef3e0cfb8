"""What is sent to a host to run an agent there: a few modules, as source.

The host needs a Python interpreter and nothing of Rudder: so the agent can tell what is missing,
and both sides always speak the same version.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODULES = (
    "rudder.cluster.frames",
    "rudder.cluster.namespaces",
    "rudder.cluster.isolation",
    "rudder.cluster.processes",
    "rudder.cluster.survey",
    "rudder.identity",
    "rudder.cluster.arrays",
    "rudder.cluster.agent",
)
"""In order of their imports; they import the standard library and each other."""

BOOTSTRAP = (
    "import sys; i = sys.stdin.buffer; "
    "exec(compile(i.read(int(i.readline())), '<rudder agent>', 'exec'))"
)
"""The whole of what is run by name on a host: reads a program, and runs it."""

_PROGRAM = """\
import json, sys, types
task = json.loads({task!r})
for name, source in task["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(sys.modules["rudder.cluster.agent"].main(task["config"]))
"""


def program(config: Mapping[str, Any]) -> bytes:
    """What an agent's standard input begins with: a length, and its program."""
    modules = [(name, _source(name)) for name in MODULES]
    task = json.dumps({"modules": modules, "config": dict(config)})
    text = _PROGRAM.format(task=task).encode()
    return f"{len(text)}\n".encode() + text


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the module {name} is gone: install Rudder again")
    return Path(spec.origin).read_text()
