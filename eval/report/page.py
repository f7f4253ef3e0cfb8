"""A document as one HTML page that needs nothing beside it: no file, no script, no network."""

from __future__ import annotations

import base64
import html

from .document import Document, Item, Picture, Section, Table

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
  max-width: 86rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid #bbb;
  padding-bottom: .2rem; }
p { max-width: 62rem; margin: .5rem 0; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .9rem; padding: .5rem 0;
  border-bottom: 1px solid #ddd; }
a { color: #0b4f8a; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid #ddd; text-align: right;
  vertical-align: top; }
th { border-bottom: 2px solid #555; vertical-align: bottom; font-weight: 600; }
th.t, td.t { text-align: left; }
td.t { overflow-wrap: break-word; max-width: 26rem; }
td.n { white-space: nowrap; }
tbody tr:nth-child(even) { background: #f6f6f6; }
tr:target, section:target > h2 { outline: 2px solid #333; }
small { color: #555; white-space: nowrap; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; }
summary { cursor: pointer; font-weight: 600; }
@media print { nav { display: none; } body { max-width: none; } }
"""


def to_html(document: Document) -> str:
    """The whole report; every text escaped, figures inside as images."""
    title = html.escape(document.title)
    links = "".join(
        f'<a href="#{html.escape(s.anchor)}">{html.escape(s.title)}</a>'
        for s in document.sections
        if not s.folded
    )
    body = "".join(_section(section) for section in document.sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>"
        f"<nav>{links}</nav>\n{body}</body></html>\n"
    )


def _section(section: Section) -> str:
    anchor, title = html.escape(section.anchor), html.escape(section.title)
    blocks = "\n".join(_block(block) for block in section.blocks)
    if section.folded:
        return f'<details id="{anchor}"><summary>{title}</summary>\n{blocks}\n</details>\n'
    return f'<section id="{anchor}"><h2>{title}</h2>\n{blocks}\n</section>\n'


def _block(block: str | Table | Picture) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Picture):
        alt, image = html.escape(block.alt), base64.b64encode(block.svg).decode()
        return f'<figure><img alt="{alt}" src="data:image/svg+xml;base64,{image}"></figure>'
    return f"<p>{html.escape(block)}</p>"


def _table(table: Table) -> str:
    kinds = ["t" if i < table.left else "n" for i in range(len(table.headings))]
    head = "".join(
        f'<th class="{kind}">{html.escape(heading)}</th>'
        for kind, heading in zip(kinds, table.headings, strict=True)
    )
    rows = []
    for place, row in enumerate(table.rows):
        anchor = table.anchors[place] if place < len(table.anchors) else ""
        start = f'<tr id="{html.escape(anchor)}">' if anchor else "<tr>"
        cells = "".join(
            f'<td class="{kind}">{_item(item)}</td>' for kind, item in zip(kinds, row, strict=True)
        )
        rows.append(f"{start}{cells}</tr>")
    body = "\n".join(rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>'
        "</table></div>"
    )


def _item(item: Item) -> str:
    text = html.escape(item.text)
    if item.strong:
        text = f"<strong>{text}</strong>"
    if item.to or item.link:
        address = f"#{item.to}" if item.to else item.link
        text = f'<a href="{html.escape(address)}">{text}</a>'
    return f"{text} <small>{html.escape(item.note)}</small>" if item.note else text
