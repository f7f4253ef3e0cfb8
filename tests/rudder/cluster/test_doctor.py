from __future__ import annotations

from typing import Any

import pytest

from rudder.cluster.doctor import checks


@pytest.mark.cluster
def test_every_check_has_an_answer_and_advice_where_something_is_wrong(traces: Any) -> None:
    found = {check.name: check for check in checks()}
    assert list(found) == [
        "CPUs",
        "memory",
        "namespaces",
        "link shaping",
        "/dev/shm",
    ]
    assert found["namespaces"].ok is True
    assert found["link shaping"].ok is True
    for check in found.values():
        assert check.found
        assert check.advice or check.ok
