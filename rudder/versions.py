"""Which libraries work together, found from their files: nothing is imported.

DGL loads native code that is compiled for single versions of torch. With any other version it
fails late and obscurely, so engines call :func:`check_versions` before they start anything.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

from packaging.requirements import Requirement

from rudder.errors import VersionError

LIBRARIES = (
    "dgl", "torch", "torchdata", "numpy", "pandas", "scipy", "numba", "pyarrow", "mlflow",
    "pydantic", "pyroute2", "typer", "scikit-learn", "xgboost", "pytorch-tabnet", "transformers",
    "bitsandbytes",
)  # fmt: skip
"""What ``rudder doctor`` reports; those of the extras may be missing."""

_COMPILED = ("graphbolt", "tensoradapter/pytorch")
_LIBRARY = re.compile(r"lib\w+?_pytorch_(\d+(?:\.\d+)+)\.so$")


def installed(library: str) -> str | None:
    """Version of an installed distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def package_folder(package: str) -> Path | None:
    """Where a top-level package lies, without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def torch_versions_of_dgl(dgl: Path) -> list[str]:
    """Torch versions that the DGL in this folder brings all of its native libraries for."""
    found = [
        {match[1] for path in (dgl / folder).glob("*.so") if (match := _LIBRARY.search(path.name))}
        for folder in _COMPILED
    ]
    return sorted(set.intersection(*found), key=lambda v: [int(part) for part in v.split(".")])


def _pins() -> str:
    """The versions that this Rudder requires, as its own metadata states them."""
    required = map(Requirement, importlib.metadata.requires("rudder-gnn") or ())
    return " with ".join(str(r) for r in required if r.name in ("dgl", "torch", "torchdata"))


def check_versions(
    *, dgl: Path | None = None, torch: str | None = None, torchdata: Path | None = None
) -> None:
    """Check that the installed DGL, torch, torchdata and NumPy work together.

    Args:
        dgl, torchdata: folders of the packages; default: where they are installed.
        torch: version of torch; default: the installed one.

    Raises:
        VersionError: one line with what was found and which versions work.
    """
    dgl = dgl or package_folder("dgl")
    torch = torch or installed("torch")
    if dgl is None or torch is None:
        name = "dgl" if dgl is None else "torch"
        raise VersionError(f"{name} is not installed; run 'make install' or pip install rudder-gnn")
    works = torch_versions_of_dgl(dgl)
    version = torch.partition("+")[0]
    if version not in works:
        raise VersionError(
            f"DGL in {dgl} has no native libraries for torch {torch}; it works with torch "
            f"{', '.join(works) or '(none found)'}; Rudder is made for {_pins()}"
        )
    torchdata = torchdata or package_folder("torchdata")
    if torchdata is None or not (torchdata / "datapipes").is_dir():
        raise VersionError(
            f"DGL needs torchdata.datapipes, which torchdata {installed('torchdata')} lacks; "
            f"Rudder is made for {_pins()}"
        )
    numpy = installed("numpy") or "none"
    if not numpy.startswith("1."):
        raise VersionError(f"torch {torch} and DGL need numpy below 2, found {numpy}")
