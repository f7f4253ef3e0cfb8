"""Tracking of runs in MLflow: :class:`Tracker`. Importing this imports no MLflow."""

from rudder.tracking.tracker import TrackedRun, Tracker

__all__ = ["TrackedRun", "Tracker"]
