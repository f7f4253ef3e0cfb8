"""Numbers as words: small models tell *medium, falling* from *high, rising* better than figures."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

DIGEST = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
"""Of this file: prompts come out otherwise with other words or limits."""

Style = Literal["figures", "words", "both"]
STYLES: tuple[Style, ...] = ("figures", "words", "both")

_SHARES = (0.05, 0.25, 0.45, 0.65, 0.85)
_SHARE_WORDS = ("almost none", "low", "medium-low", "medium", "high", "almost all")
_CHANGES = (-0.10, -0.02, 0.02, 0.10)
_CHANGE_WORDS = ("falling fast", "falling", "steady", "rising", "rising fast")
_POINTS = (-0.05, -0.01, 0.01, 0.05)
"""Of shares such as %-Hits: one point is the least that counts as a change."""


def share(value: float, style: Style) -> str:
    """A share 0..1: ``57 %`` or ``medium``."""
    return _told(f"{100 * value:.0f} %", _word(value, _SHARES, _SHARE_WORDS), style)


def change(value: float, style: Style) -> str:
    """A relative change: ``+12 %`` or ``rising fast``."""
    return _told(f"{100 * value:+.0f} %", _word(value, _CHANGES, _CHANGE_WORDS), style)


def points(value: float, style: Style) -> str:
    """A change of a share: ``-3.1 points`` or ``falling``."""
    return _told(f"{100 * value:+.1f} points", _word(value, _POINTS, _CHANGE_WORDS), style)


def count(value: float, style: Style) -> str:
    """A count or a mean of counts: ``12,400``, or ``about 10 thousand``."""
    return _told(f"{value:,.0f}", _magnitude(value), style)


def reward(value: float, row_bytes: int, style: Style) -> str:
    """Bytes saved minus bytes spent, told in rows: ``+1,200 rows`` or ``gained``."""
    rows = value / row_bytes if row_bytes else 0.0
    word = "gained" if rows > 0 else "lost" if rows < 0 else "came out even"
    return _told(f"{rows:+,.0f} rows", word, style)


def _told(figure: str, word: str, style: Style) -> str:
    if style == "figures":
        return figure
    return word if style == "words" else f"{word} ({figure})"


def _word(value: float, limits: Sequence[float], words: Sequence[str]) -> str:
    return words[bisect.bisect_right(limits, value)]


def _magnitude(value: float) -> str:
    if value < 1:
        return "none"
    for limit, word in ((100, "tens"), (1_000, "hundreds"), (1e6, "thousands"), (1e9, "millions")):
        if value < limit:
            return word
    return "billions"
