"""What the core registers: its policies, engines and commands, as any plug-in would."""

from __future__ import annotations

from rudder.registries import ENGINES

ENGINES.register(
    "distdgl", "rudder.distdgl.engine:DistDGLEngine", summary="real training on emulated hosts"
)
