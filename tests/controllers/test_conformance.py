"""Every registered controller keeps the contract: one test per controller and check."""

from __future__ import annotations

import pytest

from rudder.conformance import Check, Subject, controller_checks
from rudder.registries import CONTROLLERS

VARIANTS = [
    "fixed:interval=1",
    "threshold:target=0,drop=0",
    "threshold:target=1,drop=1",
    "random:p=0",
    "random:p=1",
]


NEEDS_A_RUN = {"shuffled"}  # checked in test_classifier.py, which has one
CHECKED = [name for name in CONTROLLERS.names() if name not in NEEDS_A_RUN]


@pytest.mark.parametrize(("subject", "check"), controller_checks([*CHECKED, *VARIANTS]))
def test_conformance(subject: Subject, check: Check) -> None:
    check.run(subject)
