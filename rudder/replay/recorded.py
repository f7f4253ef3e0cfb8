"""``recorded``: gives the answers that an earlier run was given, at the same minibatches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rudder.controller import Capabilities, Controller
from rudder.decision import Decision
from rudder.errors import ControllerError, SpecError
from rudder.observation import Observation, Task

DECISIONS_FILE = "decisions.jsonl"


class Recorded(Controller):
    """Feeds a run's recorded answers back, so that a replay of its trace has the same counts.

    Fixes synchronous mode: each pull has a question then, which is answered with what applied at
    that pull (``applied_at``), else with keep. The questions of the recorded run came at other
    times; what the controller saw is not repeated, what the buffer was told is.

    Args:
        run: run directory, or a file of decisions in it (one rank's journal will do for that rank).

    Raises:
        SpecError: no run was named, or there is none: the latter before anything is replayed.
    """

    tags: Capabilities = Capabilities(replay_only=True)

    def __init__(self, run: str = "") -> None:
        if run and not (place := Path(run).expanduser().resolve()).exists():
            raise SpecError(f"recorded: there is no run at {place}; give its directory")
        self.run = run
        self._answers: dict[int, Decision] = {}

    def _reset(self, task: Task) -> None:
        if not self.run:
            raise SpecError("recorded needs the run whose answers it gives: recorded:run=DIRECTORY")
        path = Path(self.run).expanduser()
        path = path / DECISIONS_FILE if path.is_dir() else path
        self._answers = read_answers(path, task.rank)

    def _decide(self, observation: Observation) -> Decision:
        return self._answers.get(observation.minibatch, Decision.keep("no answer came here"))


def read_answers(path: Path, rank: int) -> dict[int, Decision]:
    """The valid answers of a rank by the step that they applied at.

    Reads a run's ``decisions.jsonl`` and a rank's journal (:mod:`rudder.steering.journal`) alike.
    A last line that a crash cut short is left out, as there.

    Raises:
        ControllerError: the file cannot be read, holds a line that is no record of a decision, or
            no decision of any rank.
    """
    try:
        # Every whole line ends in a newline: what follows the last one was cut short.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise ControllerError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ControllerError(f"{path} holds no decisions: {error}") from error
    found: dict[int, Decision] = {}
    decided = False
    for number, line in enumerate(lines, start=1):
        try:
            record: Mapping[str, Any] = json.loads(line)
            if record.get("kind", "decision") != "decision":
                continue
            decided = True
            if record["rank"] == rank and record["applied_at"] is not None:
                found[record["applied_at"]] = Decision(**record["decision"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ControllerError(f"{path}:{number} is no record of a decision: {error}") from error
    if not decided:
        raise ControllerError(
            f"{path} holds no decisions; run again and keep them (a replay: without --no-decisions)"
        )
    return found
