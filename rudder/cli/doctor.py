"""``rudder doctor``: what this machine and installation can do."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Annotated, Optional

import typer
from packaging.requirements import Requirement

from rudder import __version__, plugins
from rudder.cli.clean import clean_up
from rudder.cli.options import AllowPublic, AsJson, HomeDir, Hosts, Plugins, SshConfig, Verbose
from rudder.cli.output import emit
from rudder.cluster.doctor import Check, hosts_checks
from rudder.cluster.doctor import checks as machine
from rudder.errors import HomeError, UsageError, VersionError
from rudder.home import Home
from rudder.leftovers import find
from rudder.registries import CONTROLLERS
from rudder.versions import LIBRARIES, check_versions, installed

FREE_GB = 2
"""Less room than this in the data directory is worth knowing."""
_WORDS = {True: "ok", False: "FAILS", None: "note"}


def doctor(
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="CONTROLLER",
            help="can this machine hold the model of this controller? Nothing else is looked at",
            show_default=False,
        ),
    ] = None,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="list what dead runs have left, and remove it if you agree"),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="with --clean: agree")] = False,
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    allow_public: AllowPublic = False,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    verbose: Verbose = 0,
) -> None:
    """Show what this machine can do: versions, emulated hosts, GPU, disk, plug-ins.

    With --hosts the hosts are looked at instead, all at once, as before every job on them.

    With --clean only what is certainly of this user's dead runs is listed and removed: processes,
    shared memory, temporary folders, half-made graphs and partitions.

    A check that FAILS names what does not work and what to do; the exit code is 1 then.
    """
    if yes and not clean:
        raise UsageError("--yes agrees to what --clean removes: give both")
    if clean:
        if model is not None or hosts is not None:
            raise UsageError("--clean looks at this machine: leave out --model and --hosts")
        clean_up(find(Home.resolve(home)), yes=yes, as_json=as_json)
        return
    if model is not None:
        checks = needs_of(model)
    elif hosts is not None:
        from rudder.distdgl.place import ClusterPlace

        place = ClusterPlace(hosts, Home.resolve(home).root, ssh_config, allow_public)
        place.join()
        checks = hosts_checks(place.remote())
    else:
        checks = [*installation(), *machine(), gpu(), user_home(), *data(home)]
    rows = [{**vars(check)} for check in checks]
    if not as_json:
        rows = [{**row, "ok": _WORDS[row["ok"]]} for row in rows]
    emit(rows, as_json=as_json)
    if any(check.ok is False for check in checks):
        raise typer.Exit(1)


def needs_of(controller: str) -> list[Check]:
    """What a controller needs of this machine.

    Raises:
        UnknownNameError, SpecError: no such controller, parameter or value.
    """
    from rudder.steering import build_controller

    found = build_controller(controller).needs()
    return found or [Check("model", True, f"{controller} asks none")]


def installation() -> Iterator[Check]:
    """Rudder, Python, the libraries and whether they work together, the plug-ins."""
    yield Check("rudder", True, __version__)
    version = f"{platform.python_version()} ({sys.executable})"
    supported = (3, 10) <= sys.version_info[:2] <= (3, 12)
    yield Check("python", supported, version, "" if supported else "use Python 3.10 to 3.12")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    linux = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    yield Check("system", linux, system, "" if linux else "DistDGL needs Linux on x86-64")
    core = core_requirements()
    for library in LIBRARIES:
        found = installed(library)
        if found is not None:
            yield Check(library, True, found)
        elif library in core:
            yield Check(library, False, "not installed", "make install")
        else:
            extras = "pip install 'rudder-gnn[classifiers,llm]'"
            yield Check(library, None, "not installed (an extra)", extras)
    try:
        check_versions()
        yield Check("versions", True, "dgl, torch, torchdata and numpy work together")
    except VersionError as error:
        yield Check("versions", False, str(error), "make install")
    names = CONTROLLERS.names()  # loads the plug-ins that are installed
    advice = "" if names else "the built-in controllers are gone: install Rudder again"
    yield Check("controllers", bool(names), ", ".join(names) or "none", advice)
    for name, reason in plugins.broken.items():
        yield Check(f"plug-in {name}", False, reason, "repair or uninstall the package it is in")


def core_requirements() -> set[str]:
    """Names of the libraries that Rudder cannot do without."""
    required = map(Requirement, requires("rudder-gnn") or ())
    return {r.name for r in required if r.marker is None or "extra" not in str(r.marker)}


def gpu() -> Check:
    """What torch says about CUDA; the CPU does where there is none."""
    try:
        import torch

        if torch.cuda.is_available():
            return Check("GPU", True, torch.cuda.get_device_name(0))
    except (ImportError, OSError, RuntimeError) as error:
        return Check("GPU", None, f"torch says: {error}", "training runs on the CPU")
    return Check("GPU", None, "none: training runs on the CPU")


def user_home() -> Check:
    """Importing dgl writes its configuration to ``~/.dgl``."""
    place = Path.home()
    dgl = place / ".dgl"
    if os.access(dgl if dgl.exists() else place, os.W_OK):
        return Check("HOME", True, str(place))
    advice = "DGL writes ~/.dgl when it is imported: set HOME to a directory that you may write"
    return Check("HOME", False, f"{place} is not writable", advice)


def data(home: Path | None) -> Iterator[Check]:
    """The data directory, and what dead runs have left there and elsewhere."""
    directory = data_directory(home)
    yield directory
    if directory.ok is False:
        return
    left = find(Home.resolve(home))
    if not left:
        yield Check("leftovers", True, "none")
        return
    told = ", ".join(f"{each.kind} {each.what}" for each in left)
    yield Check("leftovers", None, told, "rudder doctor --clean")


def data_directory(home: Path | None) -> Check:
    """Is there room for graphs, partitions and runs?"""
    try:
        root = Home.resolve(home).root
    except HomeError as error:
        return Check("data directory", False, str(error), "name another: --home DIR")
    free = shutil.disk_usage(root).free / 1e9
    found = f"{root}, {free:,.1f} GB free"
    if free < FREE_GB:
        return Check("data directory", None, found, "make room, or name another: --home DIR")
    return Check("data directory", True, found)
