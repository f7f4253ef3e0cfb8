"""Writes a report: ``report.html``, ``report.md`` with its figures, ``report.json``."""

from __future__ import annotations

import json
from pathlib import Path

from rudder.errors import ResultError

from .build import build
from .markdown import FIGURES, to_markdown
from .page import to_html
from .study import Study


def write_report(study: Study, out: Path, home: Path) -> dict[str, Path]:
    """Write all files of a report into a folder, over those of an earlier one.

    Args:
        out: made where it is missing.
        home: data directory of the runs.

    Raises:
        ResultError: the folder cannot be written.
    """
    document = build(study, home)
    files = {
        "html": (out / "report.html", to_html(document)),
        "markdown": (out / "report.md", to_markdown(document)),
        "data": (out / "report.json", json.dumps(study.to_dict(), indent=2, allow_nan=False)),
    }
    try:
        (out / FIGURES).mkdir(parents=True, exist_ok=True)
        for path, text in files.values():
            path.write_text(text, encoding="utf-8")
        for picture in document.pictures:
            (out / FIGURES / f"{picture.name}.svg").write_bytes(picture.svg)
    except OSError as error:
        raise ResultError(f"{out} cannot be written: {error.strerror}") from error
    return {kind: path for kind, (path, _) in files.items()}
