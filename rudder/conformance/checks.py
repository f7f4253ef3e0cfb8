"""The checks. Each is a function that raises where the contract is broken.

A check says by the controller's tags where it does not apply, and why.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rudder.conformance.situations import episode, extremes, task
from rudder.conformance.subject import Subject
from rudder.controller import Capabilities
from rudder.decision import Decision
from rudder.errors import ConformanceError
from rudder.observation import Observation
from rudder.steering.process import ProcessController


def _always(tags: Capabilities) -> str:
    return ""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what a passing controller does.
        run: raises :class:`ConformanceError` (or whatever the controller raised) on failure.
        left_out: why the check does not apply to a controller with such tags; "" = it applies.
    """

    name: str
    run: Callable[[Subject], None]
    left_out: Callable[[Capabilities], str] = _always


CHECKS: list[Check] = []
"""All checks, in order: the first ones are what the others rest on."""


def _check(
    left_out: Callable[[Capabilities], str] = _always,
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def add(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        # The first check reads the tags; what the others ask, a replay must stand behind.
        CHECKS.append(Check(run.__name__, run, _outside_replay(left_out) if CHECKS else left_out))
        return run

    return add


def _outside_replay(left_out: Callable[[Capabilities], str]) -> Callable[[Capabilities], str]:
    return lambda tags: "it runs in replay only" if tags.replay_only else left_out(tags)


def _not_repeatable(tags: Capabilities) -> str:
    return "" if tags.repeatable else "its tags say that it is not repeatable"


@_check()
def builds(subject: Subject) -> None:
    """The constructor takes the spec's parameters, and the tags are capabilities."""
    tags = subject.build().tags
    if not isinstance(tags, Capabilities):
        raise ConformanceError(f"tags must be rudder.Capabilities, found {tags!r}")
    if not tags.deadline_s > 0:
        raise ConformanceError(f"tags.deadline_s must be above 0, found {tags.deadline_s!r}")


@_check()
def resets(subject: Subject) -> None:
    """It can be reset."""
    with subject.session() as session:
        session.reset(task())


@_check()
def can_be_pickled_before_reset(subject: Subject) -> None:
    """It can travel to its trainer, and decides there as it would have here."""
    controller = subject.build()
    try:
        copied = pickle.loads(pickle.dumps(controller))
    except Exception as error:
        guilty = [f"{name} ({type(value).__name__})" for name, value in _unpicklable(controller)]
        raise ConformanceError(
            f"cannot be pickled before reset: {', '.join(guilty) or error}; "
            "make heavy state in _reset and keep plain values in the constructor"
        ) from error
    with subject.session(copied) as session:
        session.reset(task())
        session.decide(episode()[0])


@_check()
def answers_in_time(subject: Subject) -> None:
    """Every answer of an episode comes within the deadline of its tags."""
    subject.answers(episode(), task())


@_check()
def decisions_are_valid(subject: Subject) -> None:
    """The hook returns decisions that keep the contract.

    A language model may answer what does not validate: that is counted in a run, not refused here.
    """
    with subject.session() as session:
        session.reset(task())
        for observation in episode():
            if subject.tags.llm:
                decision = session.decide(observation)
                if decision.outcome == "error":
                    raise ConformanceError(f"{_where(observation)}: {decision.explanation}")
                continue
            answer = session.raw(observation)
            if not isinstance(answer, Decision):
                raise ConformanceError(f"{_where(observation)}: answered {answer!r}")
            if problems := answer.problems():
                raise ConformanceError(f"{_where(observation)}: {'; '.join(problems)}")


@_check()
def explains_in_text(subject: Subject) -> None:
    """Explanations are text, short enough to be shown."""
    with subject.session() as session:
        session.reset(task())
        for observation in episode():
            explanation = getattr(session.raw(observation), "explanation", None)
            if not isinstance(explanation, str):
                raise ConformanceError(f"{_where(observation)}: explanation is {explanation!r}")
            if len(explanation) > 2000:
                raise ConformanceError(
                    f"{_where(observation)}: explanation has {len(explanation)} characters, "
                    "2000 at most"
                )


@_check()
def leaves_observations_alone(subject: Subject) -> None:
    """Neither the observation nor anything in it is changed."""
    with subject.session() as session:
        session.reset(task())
        for observation in episode():
            before = copy.deepcopy(observation)
            session.decide(observation)
            if observation != before or repr(observation) != repr(before):
                changed = [
                    f.name
                    for f in dataclasses.fields(Observation)
                    if repr(getattr(observation, f.name)) != repr(getattr(before, f.name))
                ]
                raise ConformanceError(f"{_where(observation)}: changed {', '.join(changed)}")


@_check(_not_repeatable)
def same_seed_same_decisions(subject: Subject) -> None:
    """Two runs with one seed decide alike."""
    first = subject.answers(episode(), task(seed=5, rank=1))
    _same(first, subject.answers(episode(), task(seed=5, rank=1)), "with the same seed")


@_check(
    lambda tags: "its tags say that it depends on the seed" if tags.stochastic
    else _not_repeatable(tags)
)  # fmt: skip
def ignores_the_seed_unless_stochastic(subject: Subject) -> None:
    """Without the tag ``stochastic`` neither seed nor rank changes a decision."""
    first = subject.answers(episode(), task(seed=5))
    _same(first, subject.answers(episode(), task(seed=6)), "with another seed")
    _same(first, subject.answers(episode(), task(seed=5, rank=3)), "with another rank")


@_check(_not_repeatable)
def reset_forgets_the_run_before(subject: Subject) -> None:
    """A second run of one controller decides as the first, closed in between or not."""
    with subject.session() as session:
        session.reset(task())
        first = session.answers(episode())
        session.reset(task())
        _same(first, session.answers(episode()), "after a second reset")
        session.close()
        session.reset(task())
        _same(first, session.answers(episode()), "after close and reset")


@_check()
def closes_at_any_time(subject: Subject) -> None:
    """Close is safe before reset, twice, and in the middle of a run."""
    with subject.session() as session:
        session.close()
        session.reset(task())
        session.decide(episode()[0])
        session.close()
        session.close()


@_check()
def works_without_history(subject: Subject) -> None:
    """Observations with an empty history get an answer."""
    bare = [dataclasses.replace(o, history=()) for o in episode()]
    _answered(subject, bare)


@_check()
def works_with_a_full_history(subject: Subject) -> None:
    """Observations with a full history get an answer, also as the first of a run."""
    full = [o for o in episode() if len(o.history) == 8]
    _answered(subject, full)


@_check()
def works_at_the_extremes(subject: Subject) -> None:
    """Zeros, no buffer, no end, huge counts: each gets an answer, as the first of a run."""
    for name, observation in extremes():
        with subject.session() as session:
            session.reset(task())
            decision = session.decide(observation)
        if _failed(subject.tags, decision):
            raise ConformanceError(f"{name}: {decision.outcome}: {decision.explanation}")


@_check(
    lambda tags: "its tags say that it reads seconds" if tags.reads_seconds
    else _not_repeatable(tags)
)  # fmt: skip
def ignores_the_engine(subject: Subject) -> None:
    """Without the tag ``reads_seconds`` it decides alike when the seconds come from a model."""
    replayed = [
        dataclasses.replace(
            o,
            modelled_seconds=True,
            window=dataclasses.replace(
                o.window,
                sample_s=100 * o.window.sample_s,
                fetch_s=3 * o.window.fetch_s,
                compute_s=0.0,
                stall_s=1.0 + o.window.stall_s,
            ),
            history=tuple(
                dataclasses.replace(p, decision=dataclasses.replace(p.decision, latency_s=9.0))
                for p in o.history
            ),
        )
        for o in episode()
    ]
    real = subject.answers(episode(), task())
    _same(real, subject.answers(replayed, task()), "in a replay, with other seconds")


@_check(
    lambda tags: _not_repeatable(tags) if tags.own_process else "it runs in the trainer's process"
)
def works_in_its_own_process(subject: Subject) -> None:
    """It decides in a process of its own as it does here."""
    if subject.spec is None:
        raise ConformanceError("it wants its own process but is in no registry")
    remote = ProcessController(
        subject.spec, subject.plugins, start_timeout_s=subject.reset_timeout_s
    )
    here = subject.answers(episode(), task())
    with subject.session(remote) as session:
        session.reset(task())
        _same(here, session.answers(episode()), "in its own process")


def _answered(subject: Subject, observations: Sequence[Observation]) -> None:
    decisions = subject.answers(observations, task())
    for observation, decision in zip(observations, decisions, strict=True):
        if _failed(subject.tags, decision):
            raise ConformanceError(
                f"{_where(observation)}: {decision.outcome}: {decision.explanation}"
            )


def _failed(tags: Capabilities, decision: Decision) -> bool:
    allowed = ("valid", "invalid") if tags.llm else ("valid",)
    return decision.outcome not in allowed


def _same(expected: Sequence[Decision], found: Sequence[Decision], when: str) -> None:
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one != other:
            raise ConformanceError(
                f"decides otherwise {when}: observation {index} got {one} and then {other}"
            )


def _where(observation: Observation) -> str:
    return f"observation {observation.index}"


def _unpicklable(controller: object) -> list[tuple[str, object]]:
    found = []
    for name, value in vars(controller).items():
        try:
            pickle.dumps(value)
        except Exception:  # noqa: BLE001 - what pickling raises depends on the value
            found.append((name, value))
    return found
