"""Does a controller keep its contract? Named checks, one record each.

>>> from rudder.conformance import check_controller
>>> [record.status for record in check_controller("always") if record.check == "builds"]
['passed']
"""

from rudder.conformance.checks import CHECKS, Check
from rudder.conformance.run import CheckRecord, check_controller, controller_checks, run_check
from rudder.conformance.subject import Subject

__all__ = [
    "CHECKS",
    "Check",
    "CheckRecord",
    "Subject",
    "check_controller",
    "controller_checks",
    "run_check",
]
