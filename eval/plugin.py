"""Registers the suites, one TOML file each, and the commands."""

from __future__ import annotations

from pathlib import Path

from rudder.registries import COMMANDS
from rudder.suite import register_suites

register_suites(Path(__file__).parent / "suites")
COMMANDS.register(
    "evaluate",
    "rudder_eval.commands_evaluate:evaluate_command",
    summary="controllers through a suite's scenarios, seed by seed; resumable",
    fields={"section": "Compare"},
)
COMMANDS.register(
    "report",
    "rudder_eval.commands_report:report",
    summary="a sweep as one HTML page: rankings, ID beside OOD, claims",
    fields={"section": "Compare"},
)
