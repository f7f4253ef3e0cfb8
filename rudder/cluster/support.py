"""Why a kernel or container may refuse what emulated hosts need, and what still works then."""

from __future__ import annotations

from pathlib import Path

STILL_WORKS = (
    "Everything that needs no emulated hosts still works: graphs, partitions, and "
    "`rudder replay` on recorded traces."
)

_SYSCTLS = (
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    ("user/max_net_namespaces", "0", "sysctl -w user.max_net_namespaces=10000"),
    ("user/max_mnt_namespaces", "0", "sysctl -w user.max_mnt_namespaces=10000"),
    ("user/max_pid_namespaces", "0", "sysctl -w user.max_pid_namespaces=10000"),
)


def reasons(root: Path = Path("/")) -> list[str]:
    """Known causes that this machine shows, each with its remedy; empty if none is seen."""
    found = []
    for name, bad, remedy in _SYSCTLS:
        path = root / "proc/sys" / name
        if path.exists() and path.read_text().strip() == bad:
            found.append(f"{name.replace('/', '.')} is {bad} (as root: {remedy})")
    if _in_container(root):
        found.append(
            "this is a container, whose seccomp or AppArmor profile or masked /proc may forbid it "
            "(Docker, Podman: --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined)"
        )
    return found


def explain(step: str, root: Path = Path("/")) -> str:
    """A whole message for a refused step."""
    found = reasons(root)
    why = "; ".join(found) if found else "no known cause was found; `dmesg` may tell more"
    return (
        f"this machine does not allow emulated hosts: {step}. Likely cause: {why}. {STILL_WORKS} "
        "`rudder doctor` shows more."
    )


def _in_container(root: Path) -> bool:
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    cgroup = root / "proc/1/cgroup"
    text = cgroup.read_text() if cgroup.exists() else ""
    return any(word in text for word in ("docker", "kubepods", "containerd", "libpod", "lxc"))
