"""Machine code on disk: loaded by the next process, dropped when a module of its folder changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OUTER = """
from rudder.jit import jit
from toy.inner import WEIGHT, weighed

@jit
def total(n):
    return weighed(n) + WEIGHT
"""
INNER = """
from rudder.jit import jit

WEIGHT = {weight}

@jit
def weighed(n):
    return n * WEIGHT
"""
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from toy.outer import total
print(total(10), sum(total.stats.cache_hits.values()))
"""


def run(folder: Path) -> str:
    """What a fresh process computes, and how many kernels it loaded."""
    command = [sys.executable, "-I", "-c", RUN, str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_code_is_kept_until_a_module_beside_it_changes(tmp_path: Path) -> None:
    toy = tmp_path / "toy"
    toy.mkdir()
    (toy / "outer.py").write_text(OUTER)
    (toy / "inner.py").write_text(INNER.format(weight=2))
    assert run(tmp_path) == "22 0"
    assert run(tmp_path) == "22 1"
    (toy / "inner.py").write_text(INNER.format(weight=3))
    assert run(tmp_path) == "33 0"
    assert run(tmp_path) == "33 1"
