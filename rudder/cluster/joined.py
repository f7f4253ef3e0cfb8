"""Hosts whose processes somebody else has started: torchrun, mpirun, a scheduler.

One process per host runs the same command with ``RANK``, ``WORLD_SIZE`` and ``MASTER_ADDR`` set, as
torchrun does. Rank 0 is the launcher. It listens on ``MASTER_ADDR`` and leaves port and a secret in
the data directory, which the hosts share; every other process connects, both sides prove that they
know the secret, and the process becomes the agent of its host.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rudder.cluster.hosts import Host
from rudder.cluster.hostsfile import HostLine, check_private, resolve_address
from rudder.cluster.preflight import Facts
from rudder.cluster.remote import Reach, RemoteCluster
from rudder.cluster.shipped import BOOTSTRAP
from rudder.cluster.streams import CommandStream, SocketStream, Stream
from rudder.errors import ClusterError, UsageError

SECONDS_TO_JOIN = 120.0
SECONDS_TO_BE_CALLED = 1800.0
"""The launcher may cut a graph before it calls for its hosts."""
_SECONDS_TO_PROVE = 10.0
_RETRY_SECONDS = 0.2
_NONCE = 32
_PROOF = 32
_RANK = struct.Struct(">I")
_AGENT = (sys.executable, "-I", "-u", "-c", BOOTSTRAP)


@dataclass(frozen=True)
class Member:
    """What the variables of one process say."""

    rank: int
    world: int
    master: str
    name: str
    """Of the job, the same for all of its processes."""

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Member:
        """From the environment.

        Raises:
            UsageError: a variable is missing or makes no sense, or there are several per host.
        """
        environ = os.environ if environ is None else environ
        missing = [n for n in ("RANK", "WORLD_SIZE", "MASTER_ADDR") if not environ.get(n)]
        if missing:
            raise UsageError(
                f"--hosts env: {', '.join(missing)} must be set, as torchrun does "
                "(torchrun --nnodes=HOSTS --nproc-per-node=1 --no-python rudder train …)"
            )
        if environ.get("LOCAL_WORLD_SIZE", "1") != "1":
            raise UsageError(
                "--hosts env wants one process per host, which starts the trainers: "
                "--nproc-per-node=1, and --trainers N"
            )
        try:
            rank, world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        except ValueError as error:
            raise UsageError(f"RANK and WORLD_SIZE must be whole numbers: {error}") from error
        if not 0 <= rank < world:
            raise UsageError(f"RANK {rank} does not lie in 0..{world - 1} (WORLD_SIZE {world})")
        marks = (environ.get(n, "") for n in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"))
        name = hashlib.sha256("\0".join((environ["MASTER_ADDR"], str(world), *marks)).encode())
        return cls(rank, world, environ["MASTER_ADDR"], name.hexdigest()[:16])


def join(member: Member, data: Path, seconds: float = SECONDS_TO_BE_CALLED) -> NoReturn:
    """Become the agent of this host for the launcher, rank 0; never returns.

    Raises:
        ClusterError: it could not be found or does not know the secret.
    """
    link = _connect(member, data, seconds)
    link.setblocking(True)
    for descriptor in (0, 1):
        os.dup2(link.fileno(), descriptor)
    os.execv(_AGENT[0], _AGENT)


class JoinedCluster(RemoteCluster):
    """This host, and those of the processes that join; to be used by rank 0.

    Args:
        member: this process's.
        data: the data directory, which all hosts share.
        allow_public: hosts may have addresses of the Internet.

    Raises:
        ClusterError: a process has not joined in time; its rank is named.
        HostsFileError: a public address that is not allowed.
    """

    kind = "env"

    def __init__(
        self,
        member: Member,
        data: Path,
        *,
        allow_public: bool = False,
        seconds: float = SECONDS_TO_JOIN,
    ) -> None:
        own = resolve_address(HostLine("MASTER_ADDR", member.master))
        check_private(own, "MASTER_ADDR", allow_public)
        self._joined = _gather(member, own, data, seconds)
        reaches = []
        for rank in range(member.world):
            address = own if rank == 0 else str(self._joined[rank].getpeername()[0])
            check_private(address, f"rank {rank}", allow_public)
            host = Host(rank, f"host{rank}", address)
            by_hand = f"look at the output of rank {rank}"
            reaches.append(Reach(host, _AGENT, sys.executable, data, by_hand))
        super().__init__(reaches, data)

    def no_way(self, facts: Facts) -> str | None:
        return "nothing is copied to hosts that joined"

    def copy(self, host: int, folder: Path, names: object, back: bool) -> None:
        raise ClusterError(f"{self.hosts[host]} does not share {folder}; put it on a shared disk")

    def _open(self, reach: Reach) -> Stream:
        if reach.host.index == 0:
            return CommandStream(reach.command)
        return SocketStream(self._joined[reach.host.index])


def _gather(member: Member, own: str, data: Path, seconds: float) -> dict[int, socket.socket]:
    """Wait until every other rank has joined."""
    deadline = time.monotonic() + seconds
    joined: dict[int, socket.socket] = {}
    secret = secrets.token_bytes(_PROOF)
    with socket.create_server((own, 0)) as server, _invitation(member, data, server, secret):
        while len(joined) < member.world - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                link, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, member.world)) - set(joined))
                for other in joined.values():
                    other.close()
                raise ClusterError(
                    f"rank {', '.join(map(str, missing))} of {member.world} has not joined within "
                    f"{seconds:.0f} s; is the data directory {data} the same folder there?"
                ) from None
            rank = _admit(link, secret)
            if rank is None or rank in joined or not 0 < rank < member.world:
                link.close()
            else:
                joined[rank] = link
    return joined


@contextmanager
def _invitation(member: Member, data: Path, server: socket.socket, secret: bytes) -> Iterator[None]:
    """The file by which others find this process; for this user alone."""
    path = _invitation_path(member, data)
    address, port = server.getsockname()[:2]
    part = path.with_suffix(f".{os.getpid()}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"address": address, "port": port, "secret": secret.hex()}, file)
    part.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _invitation_path(member: Member, data: Path) -> Path:
    return data / f".join-{member.name}"


def _admit(link: socket.socket, secret: bytes) -> int | None:
    """Let a process prove that it knows the secret, and prove it; its rank, or None."""
    link.settimeout(_SECONDS_TO_PROVE)
    try:
        hello = _receive(link, _RANK.size + _NONCE)
        own = secrets.token_bytes(_NONCE)
        link.sendall(own + _proof(secret, b"launcher", hello + own))
        known = _receive(link, _PROOF)
        link.settimeout(None)
    except OSError:  # a stranger, or one that died
        return None
    if not hmac.compare_digest(known, _proof(secret, b"member", hello + own)):
        return None
    rank: int = _RANK.unpack(hello[: _RANK.size])[0]
    return rank


def _connect(member: Member, data: Path, seconds: float) -> socket.socket:
    """A connection to the launcher, both sides proven."""
    deadline = time.monotonic() + seconds
    why = "it has left no invitation"
    while time.monotonic() < deadline:
        try:
            invitation = json.loads(_invitation_path(member, data).read_text())
            where = (invitation["address"], invitation["port"])
            link = socket.create_connection(where, timeout=_SECONDS_TO_PROVE)
            _prove(link, member.rank, bytes.fromhex(invitation["secret"]))
            return link
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:  # of an earlier job, say
            why = str(error)
        time.sleep(_RETRY_SECONDS)
    raise ClusterError(
        f"rank {member.rank} found no rank 0 within {seconds:.0f} s: {why} in {data} "
        f"({_invitation_path(member, data).name}); all hosts must share that folder"
    )


def _prove(link: socket.socket, rank: int, secret: bytes) -> None:
    hello = _RANK.pack(rank) + secrets.token_bytes(_NONCE)
    link.sendall(hello)
    answer = _receive(link, _NONCE + _PROOF)
    theirs, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _proof(secret, b"launcher", hello + theirs)):
        link.close()
        raise ConnectionError("somebody else answers there")
    link.sendall(_proof(secret, b"member", hello + theirs))


def _proof(secret: bytes, side: bytes, what: bytes) -> bytes:
    return hmac.new(secret, side + what, hashlib.sha256).digest()


def _receive(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise ConnectionError("it hung up")
        data += piece
    return data
