"""What the core registers: its policies, engines and commands, as any plug-in would."""

from __future__ import annotations

from rudder.registries import COMMANDS, ENGINES

ENGINES.register(
    "distdgl", "rudder.distdgl.engine:DistDGLEngine", summary="real training on emulated hosts"
)
COMMANDS.register(
    "sync",
    "rudder.tracking.commands:sync",
    summary="send runs to MLflow that could not reach it",
    fields={"section": "Compare"},
)
COMMANDS.register(
    "ui",
    "rudder.tracking.commands:ui",
    summary="MLflow UI on this project's runs",
    fields={"section": "Compare"},
)
