"""Registers what turns recorded traces into classifiers: commands, estimators, shipped models."""

from __future__ import annotations

from rudder.registries import COMMANDS

COMMANDS.register(
    "collect",
    "rudder_training_ml.commands_collect:collect_command",
    summary="run a suite under exploring schedules, keep every decision",
    fields={"section": "Learn"},
)
COMMANDS.register(
    "label",
    "rudder_training_ml.commands_label:label",
    summary="what would have been right at every decision of a collection",
    fields={"section": "Learn"},
)
