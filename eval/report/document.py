"""A report before it is written: sections of text, tables and figures, without any markup.

All text is plain; whoever renders it escapes it. What a user wrote (names of controllers,
scenarios, errors) is in there as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Item:
    """One cell of a table.

    Attributes:
        text: what it says.
        to: anchor of this document that tells where it comes from, or "".
        note: set smaller after it, such as a count.
        strong: set apart.
        link: address outside the document, or "".
    """

    text: str
    to: str = ""
    note: str = ""
    strong: bool = False
    link: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under headings.

    Attributes:
        headings: one per column.
        rows: each as long as the headings.
        left: how many columns, from the first on, hold text rather than numbers.
        anchors: by row, or empty.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Item]]
    left: int = 1
    anchors: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        name: of its file, without extension.
        svg: the image.
        alt: what it shows, for who cannot see it.
    """

    name: str
    svg: bytes
    alt: str


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it.

    Attributes:
        title: the heading.
        anchor: unique in the document.
        blocks: text, tables, figures, in order; a text is one paragraph.
        folded: long, and closed at first where that can be done.
    """

    title: str
    anchor: str
    blocks: Sequence[str | Table | Picture] = ()
    folded: bool = False


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    sections: Sequence[Section] = field(default_factory=tuple)

    @property
    def pictures(self) -> list[Picture]:
        """All figures, in order."""
        return [
            block
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Picture)
        ]
