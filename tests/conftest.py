"""Fixtures that every test may use, and what is left out where the shared test data is missing."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rudder.home import Home
from rudder.plugins import packages

# No deadlines on machines that are shared; the same examples every time in CI.
settings.register_profile(
    "rudder",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("rudder")

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LEFT_OUT = pytest.StashKey[int]()


# Ignored where tests run in the background or by nohup; what they start would ignore them too.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """``../shared/data`` beside the checkout; tests that use it are left out where it is not."""
    return SHARED_DATA


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty data directory of this test."""
    return Home.resolve(tmp_path / "rudder-data")


@pytest.fixture(scope="session")
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session-home")


@pytest.fixture(autouse=True)
def _what_a_command_line_sets(monkeypatch: pytest.MonkeyPatch, session_home: Path) -> None:
    """A test that calls ``main`` leaves its data directory and log level to no other."""
    monkeypatch.setenv("RUDDER_HOME", str(session_home))
    # A process that runs tests for another one is told a width; tables would be cut to it.
    monkeypatch.delenv("COLUMNS", raising=False)
    # Not what was found: fixtures of a module call ``main`` before this one sees the levels, and
    # libraries that configure logging from a file (Alembic, of MLflow) switch off what exists.
    ours = packages()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] in ours and isinstance(logger, logging.Logger):
            logger.setLevel(logging.NOTSET)
            logger.disabled = False


@dataclass(frozen=True)
class Ran:
    """A finished ``rudder`` command."""

    code: int
    out: str
    err: str


RunRudder = Callable[..., Ran]


@pytest.fixture
def cli(tmp_path: Path) -> RunRudder:
    """Run ``rudder`` in a process of its own, with an empty data directory.

    ``cli("train", "debian", timeout=60, env={"NAME": "value"})`` returns code, out and err.
    """

    def run(
        *arguments: str | Path, timeout: float = 60, env: Mapping[str, str] | None = None
    ) -> Ran:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _MAIN, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env={**os.environ, "RUDDER_HOME": str(tmp_path / "rudder-data"), **(env or {})},
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"


class Traces:
    """Processes that a test has started, directly or not, told by a variable they inherit."""

    VARIABLE = "RUDDER_TEST_MARK"

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex

    def pids(self) -> list[int]:
        """Of all marked processes except this one."""
        needle = f"{self.VARIABLE}={self.mark}".encode()
        found = []
        for pid in _all_pids():
            try:
                if needle in Path(f"/proc/{pid}/environ").read_bytes() and pid != os.getpid():
                    found.append(pid)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return sorted(found)

    def namespaces(self) -> Namespaces:
        """Network, mount, pid and user namespaces of the marked processes, without this one's."""
        names = _namespaces(self.pids()) - _namespaces([os.getpid()])
        return Namespaces(frozenset(names), time.clock_gettime(time.CLOCK_BOOTTIME))

    def assert_gone(self, namespaces: Namespaces | None = None, seconds: float = 5.0) -> None:
        """No marked process is left, and nobody is in those namespaces any more."""
        users = namespaces.users if namespaces is not None else list
        deadline = time.monotonic() + seconds
        while (self.pids() or users()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.pids() == []
        assert users() == []


@dataclass(frozen=True)
class Namespaces:
    """Names of namespaces as seen at a time (seconds since boot)."""

    names: frozenset[str]
    seen: float

    def users(self) -> list[int]:
        """Processes in them that are as old; younger ones are others' under a name used again."""
        return [p for p in _all_pids() if self.names & _namespaces([p]) and _born(p) <= self.seen]


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _born(pid: int) -> float:
    """Seconds since boot; infinite if it has ended meanwhile."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return float("inf")
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _namespaces(pids: Iterable[int]) -> set[str]:
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid", "user"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return found


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """The test must leave no process behind that it has started through an environment."""
    made = Traces()
    monkeypatch.setenv(made.VARIABLE, made.mark)
    yield made
    made.assert_gone()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if SHARED_DATA.is_dir():
        return
    needing = [item for item in items if "shared_data" in getattr(item, "fixturenames", ())]
    config.stash[_LEFT_OUT] = len(needing)
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if item not in set(needing)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    here = any(map(shutil.which, BROWSERS)) and shutil.which("chromedriver")
    if item.get_closest_marker("ui") and not here:
        pytest.fail(
            "this test drives a real browser, and chromium or chromedriver is not here: apt-get "
            "install chromium chromium-driver; without them: pytest -m 'not ui'",
            pytrace=False,
        )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    left_out = config.stash.get(_LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} tests were left out: they read test data in {SHARED_DATA}, "
            "which is not there."
        )
