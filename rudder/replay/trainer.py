"""One trainer of a replay: the real buffer, policy and steering on recorded accesses."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.buffer import PersistentBuffer, frequent_ids, resolve_capacity
from rudder.decision import Decision
from rudder.observation import Facts, Task
from rudder.plugins import PluginFile
from rudder.policies.base import Ids, Policy
from rudder.registries import POLICIES
from rudder.replay.ahead import Ahead
from rudder.replay.bounds import MinBound, StaticBound
from rudder.replay.clock import TimeModel, TrainerClock
from rudder.replay.foresight import ForesightController, Outlook
from rudder.replay.futures import Paths
from rudder.result import ID_BYTES, MinibatchRow
from rudder.steering import InlineAsker, Resolved, Steering, Tally, build_controller, place
from rudder.trace import Trace, TraceRow


class ReplayTrainer:
    """Replays one rank. Per minibatch :meth:`pull`, then :meth:`train`; at the end :meth:`close`.

    Args:
        rank: global rank.
        trace: opened.
        length: minibatches to replay.
        run: scenario and controller.
        time: model of time.
        latency_s: modelled seconds per answer; None = as long as it really takes.
        plugins: plug-in files that a controller in a process of its own loads too.
        decisions_path: where decisions are appended; None = nowhere.
        loaded: what the controllers of all trainers share; None = nothing.

    Raises:
        CapacityError: a buffer larger than what it could hold.
        ControllerError: the controller could not be reset.
    """

    def __init__(
        self,
        rank: int,
        trace: Trace,
        length: int,
        run: Resolved,
        time: TimeModel,
        *,
        latency_s: float | None = 0.0,
        plugins: Sequence[PluginFile] = (),
        decisions_path: Path | None = None,
        loaded: Any = None,
    ) -> None:
        scenario, manifest = run.scenario, trace.manifest
        part = manifest.part_of(rank)
        halo, remote = manifest.halo_nodes[part], manifest.remote_nodes(part)
        self.rank, self.scenario = rank, scenario
        self.row_bytes = manifest.feature_bytes
        self._nodes = manifest.nodes
        self.capacity = resolve_capacity(scenario.buffer, halo, remote)
        self.clock = TrainerClock(scenario.prefetch_depth)
        self._policy: Policy = POLICIES.build(scenario.policy)
        self._buffer = PersistentBuffer(self.capacity, 0, self._policy)
        self._ahead = Ahead(trace.minibatches(rank), length)
        self._announced = 0
        filled = self._fill(trace)
        self._buffer.fill(filled)
        self.filled = len(filled)
        self.minimum = MinBound(self.capacity, filled, manifest.nodes)
        self.minimum_from_empty = MinBound(self.capacity, filled[:0], manifest.nodes)
        self.static = StaticBound(manifest.nodes)
        self._time = time
        self._unfetched: dict[int, tuple[float, float]] = {}
        self._latency_s = latency_s or 0.0
        self._scratch: PersistentBuffer | None = None
        self._paths = Paths(self._empty_buffer)
        self._trained: deque[tuple[float, MinibatchRow]] = deque()
        facts = Facts(
            graph=scenario.graph,
            nodes=manifest.nodes,
            edges=manifest.edges,
            feature_bytes=manifest.feature_bytes,
            parts=manifest.parts,
            part_nodes=manifest.part_nodes[part],
            halo_nodes=halo,
            remote_nodes=remote,
            batch_size=scenario.batch_size,
            fan_out=scenario.fan_out,
            capacity=self.capacity,
            trainers=manifest.ranks,
            epochs=scenario.epochs,
            total_minibatches=sum(trace.facts[rank].minibatches),
            policy=scenario.policy,
        )
        controller = build_controller(run.spec)
        if isinstance(controller, ForesightController):
            controller.foresee(self)
        if controller.tags.shared:
            controller.adopt(loaded)
        else:
            controller = place(run.spec, controller, plugins)
        asker = InlineAsker(controller, lambda: self.clock.now, latency_s)
        self._steering = Steering(
            asker,
            Task(facts, scenario.seed, rank),
            mode=scenario.mode,
            deadline_s=run.deadline_s,
            decisions_path=decisions_path,
            modelled_seconds=True,
        )

    def _fill(self, trace: Trace) -> Ids:
        """What the buffer holds at the start.

        A policy that is presampled counts the trace's own first minibatches: a trace holds no
        others.
        """
        scenario, presample = self.scenario, self._policy.presample
        filled = trace.fill_ids(self.rank, scenario.fill, self.capacity, scenario.seed)
        if not presample:
            return filled
        first = itertools.islice(self._ahead.look(), presample)
        return frequent_ids((row.remote_ids for row in first), self.capacity, filled)

    @property
    def next_epoch(self) -> int | None:
        """Epoch of the next minibatch; None at the end."""
        coming = next(self._ahead.look(), None)
        return None if coming is None else coming.epoch

    def pull(self) -> tuple[MinibatchRow, float]:
        """The next minibatch through the buffer.

        Returns its row, which lacks what training adds, and the modelled second at which this
        trainer has computed it if it waits for no other.
        """
        self._announce()
        traced = self._ahead.next()
        ids, clock = traced.remote_ids, self.clock
        sample_s, _ = self._unfetched_s(traced)
        clock.begin()
        clock.advance(sample_s)
        turn = self._steering.before_pull(traced.step)
        clock.advance(turn.waited_s)
        plan = self._buffer.plan(ids, turn.decision)
        self._buffer.commit(plan)
        self._paths.came(turn.decision)
        fetch_s = self._time.fetch_s(self.rank, traced, plan.fetched)
        clock.advance(fetch_s)
        self.minimum.add(ids)
        self.minimum_from_empty.add(ids)
        self.static.add(ids)
        row = MinibatchRow(
            rank=self.rank,
            epoch=traced.epoch,
            step=traced.step,
            seeds=traced.seeds,
            local=traced.local,
            remote_sampled=len(ids),
            hits=plan.hits,
            misses=plan.misses,
            replaced=plan.replaced,
            fetched=plan.fetched,
            stale_share=plan.stale_share,
            occupancy=plan.occupancy,
            sample_s=sample_s,
            fetch_s=fetch_s,
            wait_decision_s=turn.waited_s,
            bytes_features=plan.fetched * self.row_bytes,
            bytes_ids=plan.fetched * ID_BYTES,
        )
        while self._trained and self._trained[0][0] <= clock.now:
            done = self._trained.popleft()[1]
            self._steering.trained(done.step, done.compute_s, done.stall_s)
        self._pulled = traced
        self._steering.after_pull(row)
        row.stall_s = clock.take_over()
        _, compute_s = self._unfetched_s(traced)
        del self._unfetched[traced.step]
        return row, clock.taken + compute_s

    def _unfetched_s(self, traced: TraceRow) -> tuple[float, float]:
        """Seconds of sampling and of computing; asked of the model once, as often as it is seen."""
        known = self._unfetched.get(traced.step)
        if known is None:
            time = self._time
            known = time.sample_s(self.rank, traced), time.compute_s(self.rank, traced)
            self._unfetched[traced.step] = known
        return known

    def _announce(self) -> None:
        """Tell a policy that looks ahead of the minibatches in its window, each once."""
        window = self._policy.window
        if not window:
            return
        for row in itertools.islice(self._ahead.look(), self._announced, window + 1):
            self._buffer.announce(row.remote_ids)
            self._announced += 1
        self._announced -= 1

    def train(self, row: MinibatchRow, until: float) -> None:
        """The minibatch of the last :meth:`pull` is trained at this modelled second."""
        row.compute_s = until - self.clock.taken
        self.clock.train(until)
        self._trained.append((until, row))

    def buffered(self) -> Ids:
        """Ids of the nodes in the buffer now: int64, in order of slot."""
        return self._buffer.ids()

    def close(self) -> Tally:
        """End the controller; what steering came to."""
        return self._steering.close()

    def roll_out(self, decision: Decision, then: Decision, horizon: int) -> Outlook:
        """See :class:`rudder.replay.foresight.Future`; called while a question is put."""
        sync = self.scenario.mode == "sync"
        replacing = decision.replace or then.replace
        path, buffer = None, self._buffer
        if then.replace and (sync or not self._latency_s):
            path = self._paths.follow(buffer, decision, then)
        elif replacing:
            buffer = self._forked()
        # Once nothing is replaced any more, rows fetched are those that it does not hold.
        held = None if replacing else self._held(buffer)
        clock = self.clock.copy()
        start = clock.now
        arrives, answer = start + self._latency_s, decision
        applied, minibatches, fetched = False, 0, 0
        previous, (_, compute_s) = self._pulled, self._unfetched_s(self._pulled)
        for at, traced in enumerate(self._ahead.look()):
            clock.take_over()
            clock.train(clock.taken + compute_s)
            if traced.epoch != previous.epoch:
                clock.begin_epoch(clock.trained)
            clock.begin()
            sample_s, compute_s = self._unfetched_s(traced)
            clock.advance(sample_s)
            if sync:
                clock.advance(max(0.0, arrives - clock.now))
            due = sync or arrives <= clock.now
            if path is not None:
                rows = path.fetched(at, traced.remote_ids, answer)
            elif held is None:
                plan = buffer.plan(traced.remote_ids, answer if due else None)
                buffer.commit(plan)
                rows = plan.fetched
            else:
                rows = len(traced.remote_ids) - int(np.count_nonzero(held[traced.remote_ids]))
            clock.advance(self._time.fetch_s(self.rank, traced, rows))
            previous = traced
            if due:
                applied, arrives, answer = True, clock.now + self._latency_s, then
                if held is None and not then.replace:
                    held = self._held(buffer)
            if applied:
                fetched += rows
                minibatches += 1
                if minibatches == horizon:
                    break
        clock.take_over()
        end = clock.taken + compute_s
        return Outlook(fetched, end - start, minibatches)

    def _held(self, buffer: PersistentBuffer) -> npt.NDArray[np.bool_]:
        """Is each node of the graph buffered?"""
        held = np.zeros(self._nodes, np.bool_)
        held[buffer.ids()] = True
        return held

    def _forked(self) -> PersistentBuffer:
        if self._scratch is None:
            self._scratch = self._empty_buffer()
        self._scratch.take_over(self._buffer)
        return self._scratch

    def _empty_buffer(self) -> PersistentBuffer:
        policy: Policy = POLICIES.build(self.scenario.policy)
        return PersistentBuffer(self.capacity, 0, policy)
