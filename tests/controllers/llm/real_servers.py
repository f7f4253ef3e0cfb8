"""Servers that people use, over the default model's weights, each in an environment of its own.

An environment is made once and kept in Rudder's cache: llama-cpp-python is built from its source on
PyPI (cmake and a C++ compiler; 5 to 10 minutes on 2 cores).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from rudder_controllers.llm.backends.weights import cache_folder

LLAMA_CPP = "llama-cpp-python[server]==0.3.36"
OPENAI = "openai==1.109.1"
"""All that ``transformers serve`` wants beyond what the tests' environment has."""
START_S = 180.0


def llama_cpp_python() -> Path:
    """Interpreter of an environment with llama-cpp-python's server.

    Built for no CPU in particular: with AMX the server crashes unless it is told not to use it.
    """
    flags = "-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF"
    return _environment("llama-cpp-python", LLAMA_CPP, {"CMAKE_ARGS": flags})


def transformers_python() -> Path:
    """Interpreter of an environment that sees this one's packages, and openai beside them."""
    return _environment("transformers-serve", OPENAI, {}, see=Path(sysconfig.get_path("purelib")))


def _environment(
    name: str, wanted: str, variables: Mapping[str, str], see: Path | None = None
) -> Path:
    version = wanted.rpartition("==")[2]
    folder = cache_folder() / "servers" / f"{name}-{version}-py{sysconfig.get_python_version()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = folder / "whole"  # written last: what was cut short is made anew
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-I", "-m", "venv", str(folder)], check=True)
            if see is not None:
                site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
                (site / "seen.pth").write_text(f"{see}\n")
            command = [python, "-I", "-m", "pip", "install", "--quiet", wanted]
            subprocess.run(command, check=True, env={**os.environ, **variables})
            whole.touch()
    return python


@contextmanager
def running(command: Sequence[str | Path], port: int, ready: str, log: Path) -> Iterator[str]:
    """Start a server; gives the URL of its API once ``ready`` (a path) answers there."""
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
    try:
        end = time.monotonic() + START_S
        while not _answers(f"http://127.0.0.1:{port}{ready}"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, f"not up after {START_S:g} s: {log.read_text()}"
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=2).ok
    except requests.RequestException:
        return False


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
