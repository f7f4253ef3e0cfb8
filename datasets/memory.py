"""How much memory a step may still take on this machine."""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that can be taken without swapping: MemAvailable, or less where a cgroup limits it.

    Page cache that the kernel can drop counts as available in both.
    """
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    for limit, used, stat, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ):
        if not (cgroup / limit).is_file():
            continue
        text = (cgroup / limit).read_text().strip()
        if text == "max":
            continue
        counters = dict(line.split() for line in (cgroup / stat).read_text().splitlines())
        taken = int((cgroup / used).read_text()) - int(counters.get(cache, 0))
        available = min(available, max(int(text) - taken, 0))
    return available


def gigabytes(count: float) -> str:
    """Bytes for people: ``1.25 GB`` (10^9)."""
    return f"{count / 1e9:.2f} GB"
