"""Runs ``script.py [arguments]`` as Python itself does, but for how it leaves after a failure.

Started as a file, in an interpreter of its own: a script may want to set what libraries read when
they are imported.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    from rudder.cluster.entry import run_script
    from rudder.distdgl.leaving import no_barrier_after_failure

    path, *arguments = sys.argv[1:]
    with no_barrier_after_failure():
        run_script(path, arguments)


if __name__ == "__main__":
    # `run_script` puts the script's folder there, as Python does.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    main()
