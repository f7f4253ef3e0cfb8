"""The rules that keep the house standing: who imports whom, what stays light, what ships."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rudder.toml import read_toml

REPOSITORY = Path(__file__).resolve().parent.parent
COMPONENTS = {
    "controllers": "rudder_controllers",
    "datasets": "rudder_datasets",
    "training_ml": "rudder_training_ml",
    "eval": "rudder_eval",
}
FOLDERS = {"rudder": "rudder", **COMPONENTS}
HEAVY = ("torch", "dgl", "xgboost", "sklearn", "transformers", "mlflow")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every absolutely imported module of a file, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno


def breaches(path: Path, own: str) -> list[str]:
    """Where a file of the package ``own`` reaches into a component that it must not know."""
    tree = ast.parse(path.read_text())
    foreign = [name for name in COMPONENTS.values() if name != own]
    found = []
    for module, line in imports(tree):
        top = module.partition(".")[0]
        if top in COMPONENTS:
            found.append(f"{relative(path)}:{line} imports the folder {top}")
        elif top in foreign:
            found.append(f"{relative(path)}:{line} imports {module}")
        elif top == own and own != "rudder":
            found.append(f"{relative(path)}:{line} imports itself absolutely: {module}")
    mention = re.compile(rf"\b({'|'.join(foreign)})\b")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in mention.findall(node.value):
                found.append(f"{relative(path)}:{node.lineno} mentions {name} in a string")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_import_rule(folder: str) -> None:
    found = [breach for path in python_files(folder) for breach in breaches(path, FOLDERS[folder])]
    assert found == []


@pytest.mark.parametrize(
    ("source", "own", "count"),
    [
        ("import rudder_eval.suite", "rudder", 1),
        ("def f():\n    from rudder_controllers import x", "rudder", 1),
        ("target = 'rudder_datasets.rmat:build'", "rudder", 1),
        ("import datasets", "rudder_datasets", 1),
        ("from rudder_controllers.periodic import Always", "rudder_controllers", 1),
        ("from .periodic import Always\nimport rudder.spec", "rudder_controllers", 0),
        ("x = 'rudder_controllers.periodic:Always'", "rudder_controllers", 0),
    ],
)
def test_the_import_rule_sees_breaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, own: str, count: int
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "REPOSITORY", tmp_path)
    (tmp_path / "x.py").write_text(source)
    assert len(breaches(tmp_path / "x.py", own)) == count


@pytest.mark.parametrize("folder", COMPONENTS)
def test_specs_name_targets_of_their_own_component(folder: str) -> None:
    for path in (REPOSITORY / folder / "specs").glob("*.toml"):
        assert read_toml(path)["target"].startswith(COMPONENTS[folder] + "."), relative(path)


def test_mlflow_is_no_package() -> None:
    assert (REPOSITORY / "mlflow").is_dir()
    assert not list((REPOSITORY / "mlflow").rglob("__init__.py"))


LIGHT = """
import contextlib, io, sys
{statement}
print(sorted(m for m in {heavy!r} if m in sys.modules))
"""
LISTING = "import rudder.registries as r\nfor kind in r.ALL:\n    list(kind)"
COMMAND = """
from rudder.cli.app import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main({arguments!r})
assert code == 0, code
"""


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("import rudder", id="import"),
        pytest.param(LISTING, id="listing"),
        *(
            pytest.param(COMMAND.format(arguments=arguments), id=" ".join(arguments) or "rudder")
            for arguments in (
                [], ["--help"], ["controllers"], ["policies"], ["datasets"], ["train", "--help"],
                ["partition", "--help"], ["trace", "--help"], ["suites"], ["collect", "--help"],
            )
        ),
    ],
)  # fmt: skip
def test_looking_around_imports_nothing_heavy(statement: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", LIGHT.format(statement=statement, heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel that is built from a copy of the tree."""
    tree = tmp_path_factory.mktemp("tree")
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "*.pyc")
    for folder in FOLDERS:
        shutil.copytree(REPOSITORY / folder, tree / folder, ignore=leave_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tree / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = (tree / "out").glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_the_wheel_holds_the_tree(wheel: set[str]) -> None:
    tree = {
        (Path(package) / path.relative_to(REPOSITORY / folder)).as_posix()
        for folder, package in FOLDERS.items()
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {name for name in wheel if ".dist-info/" not in name}
    assert shipped == tree


def test_the_wheel_names_its_plugins_and_command(wheel: set[str]) -> None:
    assert [name for name in wheel if name.endswith("/entry_points.txt")]
    assert [name for name in wheel if name.endswith("/licenses/LICENSE")]


def project_text_files() -> list[Path]:
    """Every text file of the project, found without git: a source archive has none."""
    folders = [*FOLDERS, "tests", "mlflow", ".ci"]
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*")]
    files += REPOSITORY.iterdir()
    text = {".py", ".toml", ".md", ".txt", ".yml", ".yaml", ".sh", ".json", "", ".cfg"}
    return sorted(path for path in files if path.suffix in text and path.is_file())


def test_no_package_registry_is_named() -> None:
    """Where packages come from is the user's configuration."""
    registry = re.compile(
        r"pypi\.org|pythonhosted|download\.pytorch\.org|data\.dgl\.ai/wheels|anaconda\.org"
        r"|--(extra-)?index-url|(PIP|UV)_(EXTRA_|DEFAULT_)?INDEX|find-links"
    )
    found = [
        relative(path)
        for path in project_text_files()
        if path != Path(__file__) and registry.search(path.read_text())
    ]
    assert found == []


UNSAFE = re.compile(
    r"shell\s*=\s*True|allow_pickle\s*=\s*True|\bos\.system\(|\b(c?[pP]ickle|dill|joblib)\.loads?\("
    r"|^\s*(import|from) (pickle|dill|joblib|shelve|marshal)\b|weights_only\s*=\s*False",
    re.MULTILINE,
)


def test_nothing_runs_a_shell_or_unpickles() -> None:
    found = [
        f"{relative(path)}: {match[0].strip()}"
        for path in python_files(*FOLDERS)
        # The conformance suite proves that a controller can be pickled, on bytes of its own.
        if path.parent != REPOSITORY / "rudder" / "conformance"
        and (match := UNSAFE.search(path.read_text()))
    ]
    assert found == []


def test_torch_loads_nothing() -> None:
    """``torch.load`` unpickles; what is stored is safetensors, NumPy or JSON."""
    found = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files(*FOLDERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "load"
        and isinstance(node.value, ast.Name)
        and node.value.id in ("torch", "th")
    ]
    assert found == []


def test_packages_are_listed_once_and_exist() -> None:
    """pyproject's explicit list is the tree's list of packages."""
    project = read_toml(REPOSITORY / "pyproject.toml")
    listed = project["tool"]["setuptools"]["packages"]
    tree = [
        ".".join([package, *path.parent.relative_to(REPOSITORY / folder).parts])
        for folder, package in FOLDERS.items()
        for path in (REPOSITORY / folder).rglob("__init__.py")
    ]
    assert sorted(listed) == sorted(tree)
    assert project["tool"]["setuptools"]["package-dir"] == {
        package: folder for folder, package in FOLDERS.items()
    }
