"""Rudder: controllers that steer the prefetch buffer of distributed GNN training.

Importing this package, and listing what is registered, imports no heavy library.
"""

from rudder.controller import Capabilities, Controller
from rudder.decision import Decision
from rudder.observation import Facts, Observation, Past, Task, Window
from rudder.spec import Spec

__version__ = "0.1.0"

__all__ = [
    "Capabilities",
    "Controller",
    "Decision",
    "Facts",
    "Observation",
    "Past",
    "Spec",
    "Task",
    "Window",
    "__version__",
]
