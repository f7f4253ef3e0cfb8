"""The hosts file: what a line may say, and what is said about one that makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rudder.cluster.hostsfile import HostLine, check_private, read_hosts, resolve_address
from rudder.errors import HostsFileError, SpecError


def read(tmp_path: Path, text: str, name: str = "hosts") -> tuple[HostLine, ...]:
    path = tmp_path / name
    path.write_text(text)
    return read_hosts(path)


def test_lines_with_everything_and_with_nothing(tmp_path: Path) -> None:
    text = (
        "# ours\n\nann@10.0.0.1:2222 trainers=2 devices=0,1 python=/opt/x/python data=/scratch/a\n"
        "node2.cluster  port=22 ssh=gate isolated=false  # the other one\n"
    )
    first, second = read(tmp_path, text)
    assert first == HostLine(
        f"{tmp_path}/hosts:3", "10.0.0.1", user="ann", port=2222, trainers=2, devices=(0, 1),
        python="/opt/x/python", data=Path("/scratch/a"),
    )  # fmt: skip
    assert second == HostLine(
        f"{tmp_path}/hosts:4", "node2.cluster", port=22, ssh="gate", isolated=False
    )


def test_toml_says_the_same_and_keys_above_hold_for_all(tmp_path: Path) -> None:
    text = (
        'user = "ann"\ntrainers = 2\n[[host]]\naddress = "10.0.0.1"\n\n'
        '[[host]]\naddress = "10.0.0.2"\nuser = "bob"\ndevices = [1]\nisolated = false\n'
    )
    first, second = read(tmp_path, text, "hosts.toml")
    assert (first.where, first.user, first.trainers) == (f"{tmp_path}/hosts.toml:3", "ann", 2)
    assert (second.user, second.devices, second.isolated) == ("bob", (1,), False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("10.0.0.256", r"hosts:2: address = '10.0.0.256'.*256"),
        ("10.0.0.1 prot=22", r"hosts:2: no such key: prot; there are address, user, port"),
        ("10.0.0.1:70000", r"hosts:2: port = '70000': must lie in 1..65535"),
        ("10.0.0.1 fast", r"hosts:2: 'fast' is not KEY=VALUE"),
        ("10.0.0.1:22 port=23", r"hosts:2: port is given twice"),
        ("10.0.0.1 trainers=0", r"hosts:2: trainers = '0': must lie in 1"),
        ("10.0.0.1 devices=0,0", r"hosts:2: devices = '0,0': .* each once"),
        ("10.0.0.1 python=bin/python", r"hosts:2: python = 'bin/python': is no absolute path"),
        ("10.0.0.1 isolated=maybe", r"hosts:2: isolated = 'maybe': must be true or false"),
        ("-oProxyCommand=x@10.0.0.1", r"hosts:2: user = '-oProxyCommand=x': is no user name"),
        ("10.0.0.1 ssh=-oProxyCommand=x", r"hosts:2: ssh = '-oProxyCommand=x': is no host name"),
        ("ann@$(reboot)", r"hosts:2: address = '\$\(reboot\)': is no IPv4 address or host name"),
        ("[fd00::1]:22", r"hosts:2: \[fd00::1\]:22 is an IPv6 address"),
        ("fd00::1", r"hosts:2: fd00::1 is an IPv6 address"),
        ("10.0.0.9", r"hosts:2: 10.0.0.9 stands in .*hosts:1 already"),
    ],
)
def test_a_line_that_cannot_be_meant_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(HostsFileError, match=message):
        read(tmp_path, f"10.0.0.9\n{line}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[host]]\nport = 22\n", r"hosts.toml:1: a host needs an address"),
        ('[[host]]\naddress = "fd00::1"\n', r"hosts.toml:1: address = 'fd00::1': an IPv6"),
        ('host = "10.0.0.1"\n', r"written as tables \[\[host\]\]"),
        ("trainers = 2\n", "names no host"),
    ],
)
def test_toml_that_cannot_be_meant(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HostsFileError, match=message):
        read(tmp_path, text, "hosts.toml")


def test_a_file_that_is_missing_empty_or_broken(tmp_path: Path) -> None:
    with pytest.raises(HostsFileError, match=r"gone cannot be read"):
        read_hosts(tmp_path / "gone")
    with pytest.raises(HostsFileError, match="names no host"):
        read(tmp_path, "# nobody\n")
    with pytest.raises(SpecError, match="line 1"):
        read(tmp_path, "[[host]\n", "hosts.toml")


def test_public_addresses_need_a_word(tmp_path: Path) -> None:
    for private in ("10.0.0.1", "192.168.3.4", "172.16.9.9", "100.64.0.7", "169.254.1.1"):
        check_private(private, "here", allow_public=False)
    with pytest.raises(HostsFileError, match=r"hosts:3: 93.184.216.34 is a public .*allow-public"):
        check_private("93.184.216.34", "hosts:3", allow_public=False)
    check_private("93.184.216.34", "hosts:3", allow_public=True)


def test_names_are_resolved_to_ipv4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def known(name: str, port: None, family: int, kind: int) -> list[Any]:
        asked.append(name)
        if name == "nobody":
            raise OSError(-2, "Name or service not known")
        return [(family, kind, 6, "", ("10.0.0.7", 0))]

    monkeypatch.setattr("socket.getaddrinfo", known)
    assert resolve_address(HostLine("f:1", "node7")) == "10.0.0.7"
    with pytest.raises(HostsFileError, match=r"f:2: nobody has no IPv4 address \(Name or"):
        resolve_address(HostLine("f:2", "nobody"))
    assert asked == ["node7", "nobody"]
