"""The command line: help by section, exit codes, errors for people and for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rudder import __version__
from rudder.cli.app import SECTIONS, main
from rudder.registries import COMMANDS

MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"
PLUGIN = '''
import time
from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress
from rudder.cli.scenario_options import scenario_options
from rudder.errors import PartitionError, ScenarioError
from rudder.registries import COMMANDS
from rudder.scenario import Scenario


@scenario_options(omit=["heads"])
def probe(
    scenario: dict[str, Any], home: HomeDir = None, as_json: AsJson = False,
    plugin: Plugins = None, quiet: Quiet = False, verbose: Verbose = 0,
) -> None:
    """Echo what was given.

    More about it.
    """
    with progress(quiet=quiet) as report:
        report("echo", 0.5)
        report("echo", 1.0)
    Scenario.make(**scenario)
    emit(
        {**scenario, "home": home, "plugins": [file.path for file in plugin_files()]},
        as_json=as_json,
    )


def fail(how: str, as_json: AsJson = False) -> None:
    """Fail in some way."""
    raise {
        "usage": ScenarioError("rate = -1: too low"),
        "work": PartitionError("no space left"),
        "defect": RuntimeError("index went astray"),
        "disk": OSError(28, "No space left on device"),
        "interrupt": KeyboardInterrupt(),
        "exit": typer.Exit(7),
    }[how]


def wait(seconds: float) -> None:
    """Wait."""
    print("waiting", flush=True)
    time.sleep(seconds)


for function in (probe, fail, wait):
    COMMANDS.register("test-" + function.__name__, function, fields={"section": "Testing"})
'''


@pytest.fixture(autouse=True)
def forget_test_commands() -> Iterator[None]:
    yield
    for name in COMMANDS.names("test-*"):
        del COMMANDS._entries[name]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "plugin.py"
    # Its own comment per test, so that each test loads it anew.
    path.write_text(f"{PLUGIN}\n# {tmp_path}\n")
    return path


@pytest.fixture
def run(plugin: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line with the test commands loaded: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--plugin", str(plugin), *arguments])
        return code, *capsys.readouterr()

    return run


Run = Callable[..., tuple[int, str, str]]


def test_alone_it_prints_help_in_the_order_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for entry in COMMANDS:
        assert entry.summary.split(",")[0] in out
    headings = [line for line in out.splitlines() if line in SECTIONS]
    assert headings == sorted(headings, key=SECTIONS.index)
    assert "Run" in headings
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.rstrip() == out.rstrip()


def test_every_command_has_a_summary_and_a_known_section() -> None:
    for entry in COMMANDS:
        assert entry.summary, entry
        assert entry.fields.get("section") in SECTIONS, entry


@pytest.mark.parametrize("name", COMMANDS.names())
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"rudder {name}" in capsys.readouterr().out


def test_a_plugins_command_appears_in_its_section(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "Testing" in out.splitlines()
    assert "Echo what was given." in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rudder {__version__}\n"


@pytest.mark.parametrize(
    ("how", "code", "kind"),
    [
        ("usage", 2, "ScenarioError"),
        ("work", 1, "PartitionError"),
        ("defect", 1, "RuntimeError"),
        ("disk", 1, "OSError"),
        ("interrupt", 130, "Interrupted"),
    ],
)
def test_each_failure_has_its_code_and_its_json(run: Run, how: str, code: int, kind: str) -> None:
    got, out, err = run("test-fail", how)
    assert got == code
    assert out == ""
    assert "rudder: " in err
    assert ("Traceback" in err) == (how == "defect")
    assert ("report it" in err) == (how == "defect")
    got, out, err = run("test-fail", how, "--json")
    assert (got, out) == (code, "")
    told = json.loads(err.splitlines()[-1])
    assert set(told) == {"error", "message"}
    assert told["error"] == kind
    assert ("make room" in told["message"]) == (how == "disk")


def test_a_command_may_choose_its_code(run: Run) -> None:
    assert run("test-fail", "exit")[0] == 7


def test_wrong_use_is_code_2_with_a_hint(run: Run) -> None:
    code, _, err = run("test-prob")
    assert code == 2
    assert "no command is named 'test-prob'; did you mean 'test-probe'?" in err
    code, _, err = run("test-probe", "debian", "--batch-sise", "3")
    assert code == 2
    assert "--batch-size" in err
    assert "rudder test-probe --help" in err
    code, _, err = run("test-probe")
    assert code == 2
    assert "GRAPH" in err
    code, _, err = run("test-probe", "debian", "--parts", "four", "--json")
    assert code == 2
    assert json.loads(err)["error"] == "UsageError"


def test_scenario_fields_are_options_and_unset_ones_stay_unset(run: Run, plugin: Path) -> None:
    code, out, _ = run("test-probe", "rmat:nodes=10", "--json")
    assert code == 0
    assert json.loads(out) == {"graph": "rmat:nodes=10", "home": None, "plugins": [str(plugin)]}
    code, out, err = run(
        "test-probe", "debian", "--fan-out", "5,-1", "--buffer", "0.5", "--rate", "100",
        "--mode", "sync", "--prefetch-depth", "0", "--json",
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    assert (told["fan_out"], told["buffer"], told["rate"]) == ([5, -1], 0.5, 100)
    assert (told["mode"], told["prefetch_depth"]) == ("sync", 0)


def test_changes_during_the_run_are_given_one_by_one(run: Run) -> None:
    code, out, err = run(
        "test-probe", "debian", "--batch-size-at", "2=400", "--batch-size-at", "3=50",
        "--fan-out-at", "1=5,-1", "--rate-at", "4=12.5", "--seed-order", "communities", "--json",
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    assert told["batch_size_at"] == [[2, 400], [3, 50]]
    assert told["fan_out_at"] == [[1, [5, -1]]]
    assert told["rate_at"] == [[4, 12.5]]
    assert told["seed_order"] == "communities"


@pytest.mark.parametrize(
    ("text", "value"), [("0.25", 0.25), ("1.0", 1.0), ("1", 1), ("10000", 10000), ("1e-3", 0.001)]
)
def test_a_buffer_with_a_point_is_a_share(run: Run, text: str, value: float | int) -> None:
    found = json.loads(run("test-probe", "debian", "--buffer", text, "--json")[1])["buffer"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--fan-out", "10,x", "10,25"),
        ("--fan-out", "10,0", "fan_out"),
        ("--fan-out", "10", "fan_out"),
        ("--buffer", "half", "0.25"),
        ("--buffer", "1.5", "buffer"),
        ("--rate", "-1", "rate"),
        ("--rate-at", "20", "3=VALUE"),
        ("--rate-at", "0=20", "epoch 1"),
        ("--batch-size-at", "x=20", "3=VALUE"),
        ("--fan-out-at", "1=5,x", "10,25"),
        ("--fill", "full", "--fill"),
        ("--heads", "2", "--heads"),
        ("--plugin", "missing.py", "missing.py"),
    ],
)
def test_wrong_values_are_told(run: Run, option: str, value: str, part: str) -> None:
    code, out, err = run("test-probe", "debian", option, value)
    assert (code, out) == (2, "")
    assert part in err


def test_help_of_scenario_options_shows_defaults(run: Run) -> None:
    _, out, _ = run("test-probe", "--help")
    text = " ".join(out.replace("│", " ").split())
    for part in ("--batch-size", "seeds per minibatch and trainer", "10,25", "SHARE|COUNT", "200"):
        assert part in text
    assert "--heads" not in text


def test_a_broken_plugin_file_is_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    assert main(["--plugin", str(broken)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_process_exits_with_the_code(cli: Callable[..., object]) -> None:
    ran = cli("no-such-command")
    assert ran.code == 2  # type: ignore[attr-defined]
    assert cli("--version").out == f"rudder {__version__}\n"  # type: ignore[attr-defined]


def test_an_interrupt_ends_with_130(plugin: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", MAIN, "--plugin", str(plugin), "test-wait", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == "rudder: interrupted\n"
    assert time.monotonic() - start < 20
