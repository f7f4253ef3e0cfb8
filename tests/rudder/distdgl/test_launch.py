"""Other people's scripts on the same hosts: the two examples, unmodified and with five lines."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from rudder.distdgl import examples
from rudder.distdgl.launch import Launched, launch
from rudder.errors import RoleError, UsageError
from rudder.home import Home
from rudder.partition import Partition, ensure_partition

pytestmark = pytest.mark.cluster

EXAMPLES = Path(examples.__file__).parent
ARGUMENTS = ["--ip_config", "{ip_config}", "--part_config", "{part_config}"]
ARGUMENTS += ["--graph_name", "{graph_name}", "--epochs", "2"]


@pytest.fixture(scope="module")
def partition(engine_home: Home) -> Partition:
    return ensure_partition(
        "sbm:nodes=6000", 2, "metis", 0, engine_home.partitions, lambda phase, share: None
    )


def run(name: str, partition: Partition, folder: Path) -> Launched:
    return launch(EXAMPLES / name, ARGUMENTS, partition, folder, rate=200.0)


def epochs(launched: Launched, rank: int) -> list[dict[str, float]]:
    lines = (launched.logs / f"script-{rank}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"epoch"')]


def test_the_examples_differ_in_five_lines() -> None:
    plain, steered = ((EXAMPLES / n).read_text().splitlines() for n in ("plain.py", "steered.py"))
    code = [line for line in difflib.ndiff(plain[7:], steered[7:]) if line.startswith("+ ")]
    marked = [line for line in code if line.strip("+ ")]
    assert len(marked) <= 5
    assert all(line.endswith("# rudder") for line in marked)
    assert "rudder" not in "\n".join(plain[7:])


def test_a_plain_script_runs_unmodified_and_five_lines_save_traffic(
    partition: Partition, tmp_path: Path
) -> None:
    plain = run("plain.py", partition, tmp_path / "plain")
    steered = run("steered.py", partition, tmp_path / "steered")
    for launched in (plain, steered):
        for rank in range(2):
            told = epochs(launched, rank)
            assert [t["epoch"] for t in told] == [0, 1]
            assert told[1]["loss"] < told[0]["loss"]
    sent = [sum(c["tx_bytes"] for c in x.host_counters) for x in (plain, steered)]
    assert sent[1] < 0.9 * sent[0]


def test_a_script_that_fails_is_named_with_its_last_words(
    partition: Partition, tmp_path: Path
) -> None:
    """While the other trainer waits for it in a collective, as after a failure in training."""
    script = tmp_path / "broken.py"
    script.write_text(
        "import os, dgl, torch.distributed as dist\n"
        "dgl.distributed.initialize(os.environ['DGL_IP_CONFIG'])\n"
        "dist.init_process_group('gloo')\n"
        "lines = [l.split() for n in ('tcp', 'tcp6') if os.path.exists(f'/proc/net/{n}')\n"
        "         for l in open(f'/proc/net/{n}').readlines()[1:]]\n"
        "heard = [l[1] for l in lines if l[3] == '0A']\n"
        "print(len(heard) > 1, [a for a in heard if not a.strip('0:')[4:]], flush=True)\n"
        "dist.barrier()\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise ValueError('rank one')\n"
        "dist.barrier()\n"
    )
    with pytest.raises(RoleError, match=r"script 1 on host1[\s\S]*rank one"):
        launch(script, [], partition, tmp_path / "run")
    for rank in range(2):  # all that listens does so at the cluster's interface
        assert "True []\n" in (tmp_path / "run" / "logs" / f"script-{rank}.log").read_text()


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("nowhere.py", [], "no such script"),
        ("plain.py", ["{ipconfig}"], "placeholder"),
        ("plain.py", ["{"], "placeholder"),
        ("plain.py", ["{ip_config.name}"], "placeholder"),
        ("plain.py", ["{part_config[name]}"], "placeholder"),
    ],
)
def test_wrong_use_is_told(
    partition: Partition, tmp_path: Path, script: str, arguments: list[str], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        launch(EXAMPLES / script, arguments, partition, tmp_path / "run")


BUSY = """
import os, sys, dgl, torch, torch.distributed as dist, rudder.distdgl
dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
dist.init_process_group("gloo")
g = dgl.distributed.DistGraph(sys.argv[1], part_config=os.environ["DGL_CONF_PATH"])
seeds = dgl.distributed.node_split(g.ndata["train_mask"], force_even=True)
nodes = torch.arange(g.num_nodes())
degrees, labels = g.in_degrees(nodes), g.ndata["label"][nodes]
sampler = dgl.dataloading.NeighborSampler([10, 10])
loader = rudder.distdgl.DistNodeDataLoader(
    g, seeds, sampler, batch_size=200, controller="always", prefetch_depth=3, verify=True
)
other = dgl.dataloading.DistNodeDataLoader(g, seeds, sampler, batch_size=50)
next(iter(loader))
for _ in loader:
    break
for inputs, ids, blocks in loader:
    assert torch.equal(g.in_degrees(inputs), degrees[inputs])
    assert torch.equal(g.ndata["label"][ids], labels[ids])
    assert set(dgl.distributed.sample_neighbors(g, ids, 3).edges()[1].tolist()) <= set(ids.tolist())
    assert next(iter(other))[1].tolist() == seeds[:50].tolist()
    g.barrier()
rows = [row for row in loader.rows if row.epoch == 2]
assert len(rows) == len(loader) and all(r.hits + r.misses == r.remote_sampled for r in loader.rows)
print("all well", len(rows))
"""
"""What a script may do beside the loop: look into the loader, leave it, ask the servers things."""


def test_a_script_may_ask_the_servers_while_rows_are_prefetched(
    partition: Partition, tmp_path: Path
) -> None:
    """It never closes the loader either."""
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    launched = launch(script, ["{graph_name}"], partition, tmp_path / "run")
    for rank in range(2):
        assert "all well" in (launched.logs / f"script-{rank}.log").read_text()
