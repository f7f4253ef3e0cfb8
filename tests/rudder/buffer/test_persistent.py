"""The buffer beside its policies: what it refuses, rows, state, compilation, imports."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from rudder.buffer import PersistentBuffer, kernels, persistent, warm
from rudder.decision import Decision
from rudder.errors import BufferUseError
from rudder.registries import POLICIES

REPLACE = Decision(replace=True)


def make(capacity: int = 4, width: int = 2, spec: str = "score", **kwargs: Any) -> PersistentBuffer:
    return PersistentBuffer(capacity, width, POLICIES.build(spec), **kwargs)


def rows(ids: np.ndarray, width: int = 2, dtype: str = "float32") -> np.ndarray:
    return (ids[:, None] * 10 + np.arange(width)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("width", [1, 3, 100])
def test_rows_come_back_bit_by_bit(dtype: str, width: int) -> None:
    rng = np.random.default_rng(1)
    features = rng.integers(0, 256, (50, width * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    buffer = make(10, width, dtype=dtype)
    buffer.fill(np.arange(10), features[:10])
    for _ in range(30):
        ids = np.unique(rng.integers(0, 50, 12))
        plan = buffer.plan(ids, REPLACE)
        out = np.zeros((len(ids), width), dtype)
        buffer.commit(plan, features[plan.pull], out, np.arange(len(ids)))
        assert out.tobytes() == features[ids].tobytes()
        assert buffer.rows().tobytes() == features[buffer.ids()].tobytes()


@pytest.mark.parametrize("width", [2, 6, 14, 16, 18, 100])  # in words: 1 to 50, a line has 8
@pytest.mark.parametrize("start", range(0, 64, 8))
def test_rows_past_the_caches_come_back_and_touch_no_others(
    width: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent, "_STREAMED", 0)
    rng = np.random.default_rng(1)
    features = rng.random((50, width), np.float32)
    buffer = make(10, width)
    buffer.fill(np.arange(10), features[:10])
    memory = np.zeros(4 * width * 60 + 128, np.uint8)
    first = -memory.ctypes.data % 64 + start
    out = memory[first : first + 4 * width * 60].view(np.float32).reshape(60, width)
    for _ in range(10):
        memory[:] = 255
        ids = np.unique(rng.integers(0, 50, 12))
        plan = buffer.plan(ids, REPLACE)
        at = rng.permutation(60)[: len(ids)]
        buffer.commit(plan, features[plan.pull], out, at)
        assert out[at].tobytes() == features[ids].tobytes()
        assert buffer.rows().tobytes() == features[buffer.ids()].tobytes()
        out.view(np.uint8)[at] = 255
        assert (memory == 255).all()


def test_writes_into_memory_of_a_tensor() -> None:
    buffer = make()
    ids = np.array([3, 8, 2**31 + 5, 2**40])
    buffer.fill(ids[1:3], rows(ids[1:3]))
    out = torch.full((6, 2), -1.0)
    plan = buffer.plan(ids)
    assert plan.pull.tolist() == [3, 2**40]
    pulled = torch.from_numpy(rows(plan.pull))
    buffer.commit(plan, pulled.numpy(), out.numpy(), np.array([5, 0, 2, 4]))
    assert (out[[5, 0, 2, 4]].numpy() == rows(ids)).all()
    assert (out[[1, 3]] == -1).all()


def test_a_victim_that_is_read_in_its_last_minibatch_serves_its_own_row() -> None:
    # Under massivegnn an access leaves the score as it is: node 1, idle for 2 minibatches (.25,
    # below .5), is read in minibatch 3 and replaced in it. Its row goes out before it goes.
    buffer = make(1, 2, "massivegnn:alpha=0.5,interval=1")
    buffer.fill(np.array([1]), rows(np.array([1])))
    for _ in range(2):
        buffer.commit(
            buffer.plan(np.array([], np.int64)),
            np.empty((0, 2), np.float32),
            np.empty((0, 2), np.float32),
            np.array([], np.int64),
        )
    plan = buffer.plan(np.array([1, 2]), REPLACE)
    assert (plan.hits, plan.misses, plan.replaced) == (1, 1, 1)
    out = np.zeros((2, 2), np.float32)
    buffer.commit(plan, rows(plan.pull), out, np.array([0, 1]))
    assert out.tolist() == rows(np.array([1, 2])).tolist()
    assert buffer.ids().tolist() == [2]
    assert buffer.rows().tolist() == rows(np.array([2])).tolist()


def test_read_only_and_strided_arrays_are_taken() -> None:
    buffer = make()
    buffer.fill(np.arange(8)[::2], rows(np.arange(8))[::2])
    ids = np.arange(20)[::5]
    ids.flags.writeable = False
    plan = buffer.plan(ids)
    out = np.zeros((4, 2), np.float32)
    buffer.commit(plan, rows(np.arange(20))[plan.pull], out, np.arange(8)[::2] // 2)
    assert (out == rows(ids)).all()


@pytest.mark.parametrize("ids", [[3, 2], [2, 2], [-1, 2], [-(2**40)]])
def test_ids_out_of_order_are_refused_and_change_nothing(ids: list[int]) -> None:
    buffer = make(width=0)
    with pytest.raises(BufferUseError, match="distinct, ascending"):
        buffer.plan(np.array(ids), REPLACE)
    assert buffer.plan(np.array([5])).misses == 1


@pytest.mark.parametrize("ids", [np.array([1.0]), np.array([[1]])])
def test_ids_of_another_kind_are_refused(ids: np.ndarray) -> None:
    with pytest.raises(BufferUseError, match=r"must be int64 \[n\]"):
        make().plan(ids)


def test_fill_is_checked() -> None:
    for ids, message in (
        ([1, 1], "not distinct"),
        ([1, 2, 3, 4, 5], "5 rows do not fit into 4 slots"),
        ([-4], "found -4"),
    ):
        with pytest.raises(BufferUseError, match=message):
            make(width=0).fill(np.array(ids))
    with pytest.raises(BufferUseError, match="needs rows of the fill"):
        make().fill(np.array([1]))
    with pytest.raises(BufferUseError, match=r"float32 \[1, 2\], found float32 \[2, 2\]"):
        make().fill(np.array([1]), rows(np.array([1, 2])))
    with pytest.raises(BufferUseError, match="found float64"):
        make().fill(np.array([1]), rows(np.array([1]), dtype="float64"))
    buffer = make(width=0)
    buffer.commit(buffer.plan(np.array([1])))
    with pytest.raises(BufferUseError, match="before its first minibatch"):
        buffer.fill(np.array([1]))
    with pytest.raises(BufferUseError, match="found -1"):
        make(-1)


def test_commit_is_checked() -> None:
    buffer = make()
    ids = np.array([1, 2])
    plan = buffer.plan(ids)
    good = rows(ids)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((None, good, ids), "needs pulled"),
        ((good[:1], good, ids), r"pulled must be float32 \[2, 2\], found float32 \[1, 2\]"),
        ((good, None, ids), "needs out and at"),
        ((good, good.T.copy().T, ids), "C order"),
        ((good, good, ids[:1]), "1 positions for 2 remote nodes"),
        ((good, good, ids), "outside the 2 of out"),
        ((good, good.astype("float64"), ids), "found float64"),
    ]
    for arguments, message in wrong:
        with pytest.raises(BufferUseError, match=message):
            buffer.commit(plan, *arguments)
    with pytest.raises(BufferUseError, match="commit the last plan before the next"):
        buffer.plan(ids)
    with pytest.raises(BufferUseError, match="commit the last plan before the rows"):
        buffer.rows()
    buffer.commit(plan, good, good.copy(), np.array([0, 1]))
    with pytest.raises(BufferUseError, match="only once"):
        buffer.commit(plan, good, good.copy(), np.array([0, 1]))


@pytest.mark.parametrize("spec", ["score", "score-published", "massivegnn", "degree"])
def test_state_is_taken_over(spec: str) -> None:
    rng = np.random.default_rng(2)
    trace = [np.unique(rng.zipf(1.3, 30) % 200) for _ in range(80)]
    first, second = make(20, 2, spec), make(20, 2, spec)
    first.fill(np.arange(15), rows(np.arange(15)))

    def run(buffer: PersistentBuffer, nodes: np.ndarray) -> list[Any]:
        plan = buffer.plan(nodes, REPLACE if nodes[-1] % 3 else None)
        out = np.zeros((len(nodes), 2), np.float32)
        buffer.commit(plan, rows(plan.pull), out, np.arange(len(nodes)))
        assert (out == rows(nodes)).all()
        served = plan.pull[: plan.misses].tolist(), sorted(plan.pull[plan.misses :].tolist())
        return [*served, plan.hits, plan.stale, plan.replaced, set(buffer.ids().tolist())]

    for nodes in trace[:40]:
        run(first, nodes)
    state = first.state_dict()
    assert all(isinstance(v, np.ndarray) and v.dtype != object for v in state.values())
    second.load_state_dict(state)
    # Without rows it is as good, as long as somebody has them.
    bare, third = first.state_dict(rows=False), make(20, 2, spec)
    assert set(state) - set(bare) == {"rows"}
    with pytest.raises(BufferUseError, match="say how to fetch them"):
        make(20, 2, spec).load_state_dict(bare)
    third.load_state_dict(bare, rows)
    assert (third.ids() == first.ids()).all()
    assert (third.rows() == first.rows()).all()
    assert second.filled == third.filled == 15
    for nodes in trace[40:]:
        assert run(first, nodes) == run(second, nodes) == run(third, nodes)
    with pytest.raises(BufferUseError, match="20 slots of width 2, this one has 4"):
        make().load_state_dict(state)


@pytest.mark.parametrize("spec", ["score", "score-published", "massivegnn", "degree", "lfu"])
def test_a_copy_goes_on_alike_and_leaves_the_original_alone(spec: str) -> None:
    rng = np.random.default_rng(3)
    accesses = [np.unique(rng.zipf(1.3, 30) % 300) for _ in range(90)]
    first, alone, copy = make(20, 0, spec), make(20, 0, spec), make(20, 0, spec)
    for buffer in (first, alone):
        buffer.fill(np.arange(15))

    def run(buffer: PersistentBuffer, nodes: np.ndarray) -> list[Any]:
        plan = buffer.plan(nodes, REPLACE if nodes[-1] % 3 else None)
        buffer.commit(plan)
        return [plan.hits, plan.stale, plan.pull.tolist(), buffer.ids().tolist()]

    for at, nodes in enumerate(accesses[:60]):
        copy.take_over(first)  # again and again, into what the copy came to before
        assert copy.filled == 15
        foreseen = [run(copy, coming) for coming in accesses[at : at + 10]]
        seen = run(alone, nodes)
        assert foreseen[0] == seen == run(first, nodes)
    copy.take_over(first)
    assert [run(copy, nodes) for nodes in accesses[60:]] == [
        run(first, nodes) for nodes in accesses[60:]
    ]
    with pytest.raises(BufferUseError, match="20 slots of width 0, this one has 4"):
        make(4, 0, spec).take_over(first)


def compiled() -> dict[str, list[Any]]:
    """Signatures for which each kernel is compiled or loaded."""
    modules = [
        importlib.import_module(f"{kernels.__name__}.{module.name}")
        for module in pkgutil.iter_modules(kernels.__path__)
    ]
    return {
        f"{kernel.__module__}.{name}": list(kernel.signatures)
        for module in modules
        for name, kernel in vars(module).items()
        if hasattr(kernel, "signatures")
    }


def test_nothing_is_compiled_after_warm() -> None:
    warm()
    before = compiled()
    assert sum(map(bool, before.values())) > 10
    specs = ("score", "score-published", "massivegnn", "degree", "lru", "lfu-decay", "lookahead")
    for spec in specs:
        for width in (0, 5, 6):  # rows of 20 and 24 bytes: only the latter are whole words
            buffer = make(8, width, spec)
            buffer.fill(np.arange(4), rows(np.arange(4), width) if width else None)
            for step in range(4):
                ids = np.arange(step, step + 2000)
                buffer.announce(ids)
                plan = buffer.plan(ids, REPLACE)
                buffer.withdraw()
                pulled = rows(plan.pull, width)
                pulled.flags.writeable = False
                out = torch.zeros((len(ids), width)).numpy()
                buffer.commit(plan, pulled, out, np.arange(len(ids), dtype=np.int32))
            buffer.load_state_dict(buffer.state_dict())
    assert compiled() == before


def test_warm_loads_every_kernel_from_disk() -> None:
    warm()  # if need be, the machine code is written here
    code = (
        "import sys; from rudder.buffer import warm; warm()\n"
        "found = [k for name, module in list(sys.modules.items())\n"
        "         if name.startswith('rudder.buffer.kernels.')\n"
        "         for k in vars(module).values() if hasattr(k, 'stats')]\n"
        "assert sum(sum(k.stats.cache_hits.values()) for k in found) > 10\n"
        "missed = [k for k in found if k.stats.cache_misses]\n"
        "assert not missed, missed"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_import_is_light() -> None:
    code = (
        "import sys, rudder.buffer, rudder.policies.base, rudder.policies.decayed\n"
        "heavy = {'numba', 'torch', 'dgl', 'pyarrow', 'pandas', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
