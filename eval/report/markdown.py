"""A document as Markdown, figures in files beside it."""

from __future__ import annotations

import html
import re

from .document import Document, Item, Picture, Section, Table

FIGURES = "figures"
"""Folder of the figures, beside the Markdown file."""
_MARKUP = re.compile(r"([\\`*_\[\]{}|#~!])")


def to_markdown(document: Document) -> str:
    """The whole report."""
    parts = [f"# {escape(document.title)}"]
    parts += [_section(section) for section in document.sections]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown, and the HTML made of it, show as it is; on one line."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _section(section: Section) -> str:
    parts = [f'<a id="{html.escape(section.anchor)}"></a>\n\n## {escape(section.title)}']
    for block in section.blocks:
        if isinstance(block, Table):
            parts.append(_table(block))
        elif isinstance(block, Picture):
            parts.append(f"![{escape(block.alt)}]({FIGURES}/{block.name}.svg)")
        else:
            parts.append(escape(block))
    return "\n\n".join(parts)


def _table(table: Table) -> str:
    rule = ["---" if i < table.left else "---:" for i in range(len(table.headings))]
    lines = [" | ".join(escape(heading) for heading in table.headings), " | ".join(rule)]
    for place, row in enumerate(table.rows):
        cells = [_item(item) for item in row]
        if place < len(table.anchors) and table.anchors[place]:
            cells[0] = f'<a id="{html.escape(table.anchors[place])}"></a>{cells[0]}'
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def _item(item: Item) -> str:
    text = escape(item.text)
    if item.strong and text:
        text = f"**{text}**"
    if item.to:
        text = f"[{text}](#{html.escape(item.to)})"
    elif item.link:
        text = f"[{text}](<{html.escape(item.link)}>)"
    return f"{text} ({escape(item.note)})" if item.note else text
