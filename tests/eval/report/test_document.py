"""The report as text: whole, escaped, traceable, the same each time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.cells import Cell
from rudder_eval.report.build import build
from rudder_eval.report.document import Document, Item, Section, Table
from rudder_eval.report.markdown import escape, to_markdown
from rudder_eval.report.page import to_html
from rudder_eval.report.study import Study

from .conftest import HOSTILE, LLM

WANTED = {
    "Overview", "What there is to decide", "Leaderboard", "In distribution and out of it",
    "Scenario by scenario", "Quality against cost", "Beside their controls",
    "The paper's claims", "Controllers by split", "Failed cells", "How it was computed",
}  # fmt: skip


class Page(HTMLParser):
    """Elements, ids, links and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            {"id": self.ids, "href": self.links, "src": self.sources}.get(name, []).append(
                value or ""
            )

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(name="document", scope="module")
def _document(cells: list[Cell], tmp_path_factory: pytest.TempPathFactory) -> Document:
    return build(Study("quick", cells), tmp_path_factory.mktemp("home"))


def test_all_sections_are_there(document: Document) -> None:
    titles = {section.title for section in document.sections}
    assert titles >= WANTED
    assert {picture.name for picture in document.pictures} == {
        "standings", "id-ood-regret_to_timing_oracle", "by-axis-regret_to_timing_oracle",
        "by-axis-communication", "heat-map", "quality-cost",
    }  # fmt: skip


def test_the_overview_tells_what_is_compared_from_what_stands_beside_it(
    cells: list[Cell], document: Document
) -> None:
    [table] = [b for b in document.sections[0].blocks if isinstance(b, Table)]
    told = {row[0].text: row[1].text for row in table.rows}
    # Seven contenders; timing-oracle and two controls, each in 8 scenarios at 4 seeds; 5 failed.
    assert told["controllers"].startswith("7 compared; beside them 3: ")
    assert told["cells"].startswith(f"{len(cells) - 5} finished, 5 failed; 96 of them ")


def test_headroom_comes_first_and_says_where_nothing_is_to_decide(document: Document) -> None:
    assert document.sections[1].anchor == "headroom"
    [table] = [b for b in document.sections[1].blocks if isinstance(b, Table)]
    says = {row[0].text: row[2].text for row in table.rows}
    assert says["uniform"] == "nothing to decide here"
    assert says["wordnet"] == "decides"


def test_nothing_breaks_out_of_the_page(cells: list[Cell], tmp_path: Path) -> None:
    evil = [
        replace(
            cell,
            scenario=cell.scenario + HOSTILE, run_id=cell.run_id + HOSTILE,
            mlflow_run_id=HOSTILE, error=HOSTILE if cell.error else None,
        )
        for cell in cells
    ]  # fmt: skip
    study = Study("sweep" + HOSTILE, evil, {"suite": HOSTILE})
    page = Page(to_html(build(study, tmp_path)))
    assert page.tags & {"script", "iframe", "object", "form", "link"} == set()
    assert {name for name in page.attributes if name.startswith("on")} == set()
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert HOSTILE in "".join(page.text)


def test_the_page_needs_nothing_beside_it(document: Document) -> None:
    text = to_html(document)
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]+", "", text))
    assert "default-src 'none'" in text


def test_every_link_leads_somewhere_and_every_run_is_told(
    document: Document, cells: list[Cell]
) -> None:
    page = Page(to_html(document))
    assert len(page.ids) == len(set(page.ids))
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)
    told = "".join(page.text)
    assert all(cell.run_id in told and cell.cell in told for cell in cells)
    markdown = to_markdown(document)
    assert set(re.findall(r"\]\(#([^)]+)\)", markdown)) <= set(
        re.findall(r'<a id="([^"]+)">', markdown)
    )


def test_numbers_lead_to_their_cells(document: Document) -> None:
    section = next(s for s in document.sections if s.anchor == "scenarios")
    [table] = [b for b in section.blocks if isinstance(b, Table)]
    for row in table.rows:
        for item in row[1:]:
            assert item.to.startswith("cells-") or item.text == "no run"
    no_run = [row[0].text for row in table.rows if any(i.text == "no run" for i in row)]
    assert no_run == ["held"]  # where all cells of xgboost failed


def test_runs_that_are_still_there_are_linked(cells: list[Cell], tmp_path: Path) -> None:
    (tmp_path / "runs" / "a b").mkdir(parents=True)
    kept = [replace(cells[0], run_dir="runs/a b"), replace(cells[1], run_dir="runs/gone")]
    page = Page(to_html(build(Study("s", kept), tmp_path)))
    files = [link for link in page.links if link.startswith("file:")]
    assert files == [(tmp_path / "runs" / "a b").as_uri()]


def test_failed_cells_are_shown(document: Document) -> None:
    section = next(s for s in document.sections if s.anchor == "failed")
    [table] = [b for b in section.blocks if isinstance(b, Table)]
    assert len(table.rows) == 5
    assert table.rows[0][2].text == "ControllerError: it fell over"


def test_the_same_cells_make_the_same_page(
    document: Document, cells: list[Cell], tmp_path: Path
) -> None:
    assert to_html(build(Study("quick", cells), tmp_path)) == to_html(document)


def test_figures_are_well_formed_and_hold_no_markup_of_names(document: Document) -> None:
    for picture in document.pictures:
        root = ET.fromstring(picture.svg)
        assert root.tag.endswith("svg")
        assert not [e for e in root.iter() if e.tag.endswith("script")]
        assert picture.alt


def test_markdown_tables_keep_their_columns(document: Document) -> None:
    markdown = to_markdown(document)
    assert "<script" not in markdown
    assert "<img" not in markdown
    columns = 0
    for line in markdown.splitlines():
        if line.startswith("| ") and line.endswith(" |"):
            found = len(re.findall(r"(?<!\\)\|", line))
            columns = columns or found
            assert found == columns, line
        else:
            columns = 0


def test_markdown_escapes_what_it_would_read() -> None:
    assert escape("a|b *c* <d> [e](f)\n# g") == r"a\|b \*c\* &lt;d&gt; \[e\](f) \# g"


def test_both_renderings_tell_notes_links_and_weight() -> None:
    item = Item("1", to="there", note="n=2", strong=True)
    document = Document("t", (Section("s", "there", (Table(("a", "b"), [[Item("x"), item]]),)),))
    assert "[**1**](#there) (n=2)" in to_markdown(document)
    page = to_html(document)
    assert '<a href="#there"><strong>1</strong></a> <small>n=2</small>' in page


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda c: c.controller == "always" and c.scenario == "held" and not c.seed,
                     id="one cell"),
        pytest.param(lambda c: not c.finished, id="only failed ones"),
        pytest.param(lambda c: c.split == "id_val", id="in distribution alone"),
        pytest.param(lambda c: c.axis == "fan_out", id="one axis alone"),
        pytest.param(lambda c: c.scenario == "uniform", id="nothing to decide"),
        pytest.param(lambda c: c.seed == 0, id="one seed"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_small_sweeps_have_reports_too(cells: list[Cell], tmp_path: Path, keep: Any) -> None:
    study = Study("s", [cell for cell in cells if keep(cell)])
    document = build(study, tmp_path)
    assert to_html(document)
    assert study.to_dict()["cells"] == len(study.cells)


def test_without_bounds_communication_is_compared(cells: list[Cell], tmp_path: Path) -> None:
    """As on the real engine, which has no oracle."""
    keys = ("headroom", "best_constant", "regret", "regret_to_timing_oracle", "min_fetched",
            "communication_vs_no_buffer")  # fmt: skip
    bare = [
        replace(
            cell, engine="distdgl",
            summary={k: v for k, v in cell.summary.items() if k not in keys},
        )
        for cell in cells
    ]  # fmt: skip
    study = Study("s", bare)
    names = {picture.name for picture in build(study, tmp_path).pictures}
    assert {"id-ood-communication", "by-axis-communication", "heat-map"} <= names
    assert study.beside_reference(["static"])[1] == "the best controller here"
    assert len(study.ranking.scenarios) == 8


def test_the_leaderboard_holds_no_bound_and_no_control_in_its_places(cells: list[Cell]) -> None:
    study = Study("s", cells)
    ranked = [one.controller for one in study.ranking.standings]
    assert set(ranked) == {"none", "static", "always", HOSTILE, "xgboost", "mlp", LLM}
    assert ranked[-1] == "none"
    assert "uniform" not in study.ranking.scenarios
