"""A real DistDGL job on emulated hosts, in new interpreters and in forked ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rudder.cluster import Deadline, LocalCluster, Report, Role, Supervisor

pytestmark = pytest.mark.cluster

NODES, EDGES, WIDTH, PARTS = 1000, 8000, 8, 2
PORT = 30050

PARTITION = f"""
import sys, dgl, torch
graph = dgl.graph((torch.arange({EDGES}) % {NODES}, torch.arange({EDGES}) * 7 % {NODES}),
                  num_nodes={NODES})
graph.ndata["feat"] = torch.ones({NODES}, {WIDTH})
dgl.distributed.partition_graph(graph, "tiny", {PARTS}, sys.argv[1], part_method="random")
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    command = [sys.executable, "-I", "-c", PARTITION, str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder / "tiny.json"


@pytest.mark.parametrize("preload", [(), ("torch", "dgl")], ids=["cold", "warm"])
def test_servers_and_trainers_find_each_other_and_end_well(
    tmp_path: Path, config: Path, traces: Any, preload: tuple[str, ...]
) -> None:
    with LocalCluster(PARTS, rate=100, preload=preload) as cluster:
        ip_config = tmp_path / "hosts.txt"
        ip_config.write_text("".join(f"{host.address} {PORT}\n" for host in cluster.hosts))
        common = {
            "DGL_DIST_MODE": "distributed",
            "DGL_CONF_PATH": str(config),
            "DGL_IP_CONFIG": str(ip_config),
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_CLIENT": str(PARTS),
            "DGL_NUM_SAMPLER": "0",
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_KEEP_ALIVE": "0",
            "DGL_DIST_MAX_TRY_TIMES": "20",
            "DGLBACKEND": "pytorch",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": cluster.hosts[0].interface,
            "MASTER_ADDR": cluster.hosts[0].address,
            "MASTER_PORT": "29500",
            "WORLD_SIZE": str(PARTS),
        }
        servers = [
            Role(
                host=k,
                kind="server",
                index=k,
                log=tmp_path / f"server-{k}.log",
                entry="distdgl_roles:serve",
                kwargs={"ip_config": str(ip_config)},
                env={**common, "DGL_ROLE": "server", "DGL_SERVER_ID": str(k)},
                service=True,
            )
            for k in range(PARTS)
        ]
        trainers = [
            Role(
                host=k,
                kind="trainer",
                index=k,
                log=tmp_path / f"trainer-{k}.log",
                entry="distdgl_roles:train",
                kwargs={"ip_config": str(ip_config), "config": str(config), "nodes": NODES},
                env={**common, "DGL_ROLE": "client", "RANK": str(k), "LOCAL_RANK": "0"},
            )
            for k in range(PARTS)
        ]
        done: list[Report] = []

        def hear(role: Role, report: Report) -> None:
            if report.phase == "done":
                done.append(report)

        before = cluster.counters()
        Supervisor(cluster).run(
            [*servers, *trainers],
            [Deadline("ready", 120, ("trainer",))],
            silence=60,
            on_report=hear,
        )
        after = cluster.counters()
    # every feature is 1: the trainers' sums of all rows, added up
    expected = {"total": float(PARTS * NODES * WIDTH), "edges": EDGES, "rows": NODES}
    assert [report.data for report in done] == [expected] * PARTS
    remote = NODES * WIDTH * 4 * (PARTS - 1) / PARTS  # bytes of features that each must receive
    for old, new in zip(before, after, strict=True):
        assert new.rx_bytes - old.rx_bytes > 0.9 * remote
    assert "Server is exiting" in (tmp_path / "server-0.log").read_text()
