"""How figures look: controllers differ by marker and filling, so that they read without colour."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which most eyes tell apart; pale yellow left out.
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_SETTINGS: Any = {
    "svg.hashsalt": "rudder",  # the same figure, the same bytes
    "text.parse_math": False,  # a dollar sign in a controller's spec is a dollar sign
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
}
_LONGEST = 34


@dataclass(frozen=True)
class Mark:
    """A controller's marker, the same in all figures."""

    marker: str
    colour: str
    filled: bool

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of matplotlib's ``plot`` and ``errorbar``."""
        return {
            "marker": self.marker,
            "color": self.colour,
            "markerfacecolor": self.colour if self.filled else "white",
            "markeredgecolor": self.colour,
            "markersize": 6.5,
            "markeredgewidth": 1.2,
        }


def marks(controllers: Sequence[str]) -> dict[str, Mark]:
    """Markers of some controllers, distinct for the first 24."""
    return {
        name: Mark(
            _MARKERS[i % len(_MARKERS)],
            _COLOURS[i % len(_COLOURS)],
            (i // len(_MARKERS)) % 2 == 0,
        )
        for i, name in enumerate(controllers)
    }


def short(name: str, longest: int = _LONGEST) -> str:
    """A name that fits a figure, on one line; the tables hold it whole."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(name.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def settings() -> Any:
    """The context in which figures are made and written."""
    import matplotlib

    return matplotlib.rc_context(_SETTINGS)


def new_figure(width: float, height: float) -> Figure:
    """A figure of some inches that lays itself out."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure) -> bytes:
    """The figure as SVG, without the time it was made at."""
    out = io.BytesIO()
    metadata: Mapping[str, Any] = {"Date": None, "Creator": None}
    figure.savefig(out, format="svg", metadata=metadata)
    return out.getvalue()
