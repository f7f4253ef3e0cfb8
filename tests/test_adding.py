"""The pages that say how to add something: they show the files beside them, and all of it runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from rudder.cli.app import main
from rudder.errors import ModelError
from rudder.home import Home
from rudder.model import Examples
from rudder.plugins import load_file
from rudder.registries import ESTIMATORS
from rudder.tracking.store import Store

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = {
    "controller": REPOSITORY / "controllers" / "adding",
    "policy": REPOSITORY / "rudder" / "policies" / "adding",
    "dataset": REPOSITORY / "datasets" / "adding",
    "estimator": REPOSITORY / "training_ml" / "adding",
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each code block."""
    return BLOCK.findall((page / "README.md").read_text())


def commands(page: Path) -> list[list[str]]:
    """The commands of a page, in order, but for the one that serves until it is ended."""
    lines = [line for kind, text in blocks(page) if kind == "console" for line in text.splitlines()]
    found = [shlex.split(line) for line in lines]
    assert all(program == "rudder" for program, *_ in found)
    assert found[-1] == ["rudder", "ui"]
    return [arguments for _, *arguments in found[:-1]]


@pytest.mark.parametrize("kind", PAGES)
def test_the_page_shows_the_file(kind: str) -> None:
    page = PAGES[kind]
    shown = [text for language, text in blocks(page) if language in ("python", "toml")]
    files = sorted(path for path in page.iterdir() if path.suffix in (".py", ".toml"))
    files = [path for path in files if path.name != "__init__.py"]
    assert shown == [path.read_text() for path in files]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One for all pages: they share the partition and the trace of the scenario of quick."""
    return Home.resolve(tmp_path_factory.mktemp("adding") / "rudder-data")


def run_page(kind: str, home: Home, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every command of a page, in a folder that holds the page's files alone."""
    for path in PAGES[kind].iterdir():
        if path.suffix in (".py", ".toml"):
            shutil.copy(path, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RUDDER_HOME", str(home.root))
    for arguments in commands(PAGES[kind]):
        assert main(arguments) == 0, arguments
    asked = next(each for each in commands(PAGES[kind]) if each[0] == "evaluate")
    with Store(home).session() as client:
        experiment = client.get_experiment_by_name("rudder").experiment_id
        seen = client.search_runs([experiment], "tags.family != 'control'")
    controllers = asked[asked.index("--controllers") + 1].split(",")
    for controller in controllers:
        mine = [run for run in seen if run.data.tags.get("controller") == controller]
        assert mine, f"{controller} is not in MLflow"
        assert {run.info.status for run in mine} == {"FINISHED"}


@pytest.mark.parametrize("kind", ["controller", "dataset"])
def test_the_page_runs(
    kind: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page(kind, home, monkeypatch, tmp_path)


@pytest.mark.full  # as the others do, at the same length
@pytest.mark.parametrize("kind", ["policy", "estimator"])
def test_the_longer_page_runs(
    kind: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page(kind, home, monkeypatch, tmp_path)


def test_the_policy_replays(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(PAGES["policy"])
    asked = next(each for each in commands(PAGES["policy"]) if each[0] == "replay")
    assert main([*asked, "--json", "--home", str(home.root)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["replaced"] > 0
    assert told["regret"] >= 1


def test_the_estimator_learns_and_comes_back(tmp_path: Path) -> None:
    load_file(PAGES["estimator"] / "centroids.py")
    draw = np.random.default_rng(0)
    labels = draw.integers(2, size=400).astype(np.int8)
    rows = draw.normal(size=(400, 5)) * 10.0 + 3.0 + 25.0 * labels[:, None]
    columns = tuple(f"column{n}" for n in range(5))
    examples = Examples(columns, rows, labels, np.ones(400), np.full(400, "run"))
    fitted = ESTIMATORS.build("centroids")
    fitted.fit(examples, examples, 0, lambda what, share: None)
    answers = fitted.predict(rows)
    assert ((answers > 0.5) == labels).mean() > 0.95
    assert answers.min() >= 0
    assert answers.max() <= 1
    fitted.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == list(fitted.files)
    again = ESTIMATORS.build("centroids")
    again.restore(tmp_path, 5)
    np.testing.assert_array_equal(again.predict(rows), answers)
    with pytest.raises(ModelError, match="shape"):
        again.restore(tmp_path, 4)
