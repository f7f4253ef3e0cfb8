"""What tells that memory ran out, and how a controller's answer says so."""

from __future__ import annotations

import errno

import pytest
import torch

from rudder import Controller, Decision, Observation
from rudder.conformance.situations import episode
from rudder.errors import out_of_memory


class OutOfMemoryError(RuntimeError):
    """As torch names it for a GPU."""


def test_what_means_that_memory_ran_out() -> None:
    with pytest.raises(RuntimeError) as cpu:
        torch.empty(1 << 46)
    for error in (
        MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), cpu.value,
        OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    ):  # fmt: skip
        assert out_of_memory(error), error
    for other in (OSError(errno.ENOENT, "no such file"), RuntimeError("no kernel"), ValueError()):
        assert not out_of_memory(other), other


@pytest.mark.parametrize(("error", "full"), [(MemoryError(), True), (ValueError("no"), False)])
def test_an_answer_that_failed_for_want_of_memory_says_so(error: Exception, full: bool) -> None:
    class Failing(Controller):
        def _decide(self, observation: Observation) -> Decision:
            raise error

    found = Failing().decide(episode()[0])
    assert (found.outcome, found.replace) == ("error", False)
    assert found.details == ({"out_of_memory": True} if full else None)
