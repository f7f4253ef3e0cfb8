"""Steering: metrics collector, context builder and decision loop. See README.md."""

from rudder.steering.asker import Answer, Asker, InlineAsker, ThreadAsker
from rudder.steering.journal import read_decisions
from rudder.steering.loop import Steering, Turn
from rudder.steering.process import ProcessController
from rudder.steering.rebuilt import Asked, rebuild
from rudder.steering.resolve import (
    Resolved,
    build_controller,
    check_for_training,
    place,
    resolve,
    serve,
    steer,
)
from rudder.steering.resuming import Earlier
from rudder.steering.served import ServedController
from rudder.steering.service import ControllerService
from rudder.steering.tally import Tally

__all__ = [
    "Answer",
    "Asked",
    "Asker",
    "ControllerService",
    "Earlier",
    "InlineAsker",
    "ProcessController",
    "Resolved",
    "ServedController",
    "Steering",
    "Tally",
    "ThreadAsker",
    "Turn",
    "build_controller",
    "check_for_training",
    "place",
    "read_decisions",
    "rebuild",
    "resolve",
    "serve",
    "steer",
]
