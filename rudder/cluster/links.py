"""The network between emulated hosts: one bridge, one veth pair per host, token buckets.

Runs inside the outer world, as its root. Each host's interface is called eth0; its other end hangs
on the bridge. Both ends carry a token bucket filter: eth0's shapes what the host sends, the
bridge's end what it receives.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyroute2 import IPRoute

from rudder.cluster.namespaces import NEWNET, inside
from rudder.cluster.survey import counters

INTERFACE = "eth0"
_BRIDGE = "br0"
_ROOT_HANDLE = 0xFFFFFFFF  # the kernel's name for the top of an interface's queue tree
_HANDLE = 0x10000
_BURST = 256 * 1024
"""Bytes that may pass at once: above the largest segment that the kernel hands down (64 kB)."""
_LATENCY = "200ms"


def connect(hosts: Sequence[tuple[int, int, str]], prefix: int) -> None:
    """Make the bridge and wire the hosts to it.

    Args:
        hosts: of each host the pid of its first process, a descriptor of its network namespace,
            and its address.
        prefix: length of the network prefix.
    """
    with IPRoute() as routes:
        routes.link("add", ifname=_BRIDGE, kind="bridge")
        bridge = _index(routes, _BRIDGE)
        routes.link("set", index=bridge, state="up")
        routes.link("set", index=_index(routes, "lo"), state="up")
        for number, (pid, _, _) in enumerate(hosts):
            routes.link(
                "add",
                ifname=_bridge_end(number),
                kind="veth",
                peer={"ifname": INTERFACE, "net_ns_pid": pid},
            )
            end = _index(routes, _bridge_end(number))
            routes.link("set", index=end, master=bridge, state="up")
    for _, namespace, address in hosts:
        with inside(namespace, "net", NEWNET), IPRoute() as routes:
            eth0 = _index(routes, INTERFACE)
            routes.addr("add", index=eth0, address=address, prefixlen=prefix)
            routes.link("set", index=eth0, state="up")
            routes.link("set", index=_index(routes, "lo"), state="up")


def shape(namespaces: Sequence[int], rate_mbit: float, before: float) -> None:
    """Give every link a rate in Mbit/s (0 = unshaped); ``before`` is the rate it has."""
    for number, namespace in enumerate(namespaces):
        with IPRoute() as routes:
            _limit(routes, _bridge_end(number), rate_mbit, before)
        with inside(namespace, "net", NEWNET), IPRoute() as routes:
            _limit(routes, INTERFACE, rate_mbit, before)


def read_counters(pid: int) -> tuple[int, int]:
    """Bytes received and sent at the interface of the host whose first process is ``pid``."""
    received, sent = counters(INTERFACE, str(pid))
    return received, sent


def _bridge_end(number: int) -> str:
    return f"v{number}"


def _index(routes: IPRoute, name: str) -> int:
    return int(routes.link_lookup(ifname=name)[0])


def _limit(routes: IPRoute, name: str, rate_mbit: float, before: float) -> None:
    index = _index(routes, name)
    if before > 0:
        routes.tc("del", None, index, parent=_ROOT_HANDLE)
    if rate_mbit > 0:
        bytes_per_second = round(rate_mbit * 1e6 / 8)
        routes.tc(
            "add",
            "tbf",
            index,
            _HANDLE,
            rate=bytes_per_second,
            burst=max(_BURST, bytes_per_second // 250),
            latency=_LATENCY,
        )
