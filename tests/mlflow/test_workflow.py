"""A sweep run as an MLflow project, and what a person sees of it in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By

from rudder.tracking.store import Store
from rudder.tracking.views import METRICS

from .browser import Browser, rudder_ui
from .conftest import CONTROLLERS, PROJECT, SCENARIOS, Swept

GROUPS = [
    f"Group: controller: {controller}, distribution: {distribution}"
    for controller in CONTROLLERS
    for distribution in ("ID", "OOD")
]


def test_an_entry_point_evaluates(swept: Swept) -> None:
    assert "succeeded" in swept.said
    with Store(swept.home).session() as client:
        ids = [one.experiment_id for one in client.search_experiments()]
        cells = client.search_runs(ids, "tags.sweep = 'small' and tags.cell LIKE '%'")
        found = {(run.data.tags["controller"], run.data.tags["scenario"]) for run in cells}
        project = client.get_experiment_by_name("projects").experiment_id
        (own,) = client.search_runs([project])
    assert found == {(c, s) for c in CONTROLLERS for s in SCENARIOS}
    assert own.info.status == "FINISHED"
    assert own.data.params["controllers"] == ",".join(CONTROLLERS)


def test_the_filters_that_the_readme_shows(swept: Swept) -> None:
    text = (PROJECT / "README.md").read_text().partition("## Single runs")[0]
    filters = re.findall(r"^    (tags\..*)$", text, re.MULTILINE)
    with Store(swept.home).session() as client:
        experiment = client.get_experiment_by_name("rudder").experiment_id
        found = [
            {
                (run.data.tags["controller"], run.data.tags["scenario"])
                for run in client.search_runs([experiment], each.replace("'quick'", "'small'"))
            }
            for each in filters
        ]
    shifted = {(controller, "batch") for controller in CONTROLLERS}
    # By distribution and by split; then what has headroom, what is a control, what failed.
    assert found == [shifted, shifted, set(), set(), set()]


@pytest.fixture(scope="module")
def opened(swept: Swept) -> Iterator[Browser]:
    with rudder_ui(swept.home.root) as address:
        found = Browser(address)
        yield found
        found.close()


@pytest.fixture
def browser(opened: Browser) -> Browser:
    """On the page that ``rudder ui`` opens."""
    opened.driver.switch_to.default_content()
    opened.go(opened.start)
    return opened


@pytest.mark.ui
def test_it_opens_on_the_cells_of_the_sweep(browser: Browser) -> None:
    browser.matching(4)
    assert sorted(browser.names()) == GROUPS
    assert browser.one("[data-testid='saved-views-trigger']").text == "sweep small"
    page = browser.text()
    assert "Group by: controller" in page
    assert "Playground" not in page  # of the view for language models
    assert "communication_vs_no_buffer" in page
    asked = browser.script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert {urlsplit(one).hostname for one in asked} == {"127.0.0.1"}  # nothing leaves

    browser.search("tags.split = 'ood_batch_size'")
    browser.matching(2)
    assert sorted(browser.names()) == GROUPS[1::2]
    for arrow in browser.all("[role='button'][aria-label], .ag-row [role='button']"):
        if arrow.is_displayed():
            arrow.click()
    cells = ["always · batch · seed 1000", "static · batch · seed 1000"]
    browser.wait(
        lambda: sorted(n for n in browser.names() if not n.startswith("Group")) == cells,
        "the cells of ood_batch_size",
    )

    browser.search("tags.controller = 'always'")
    browser.matching(2)
    browser.charts()
    assert browser.bars(0) == 2  # one per group: ID and OOD


@pytest.mark.ui
def test_the_charts_group_by_controller(browser: Browser) -> None:
    browser.matching(4)
    browser.charts()
    titles = [
        card.text for card in browser.all("[data-testid='experiment-view-compare-runs-card']")
    ]
    shown = [name for name in METRICS if any(name in title for title in titles)]
    assert shown[:4] == list(METRICS[:4])
    for chart in range(4):
        assert browser.bars(chart) == len(GROUPS)
    assert sorted(browser.names()) == GROUPS


@pytest.mark.ui
def test_the_report_of_the_sweep_renders(browser: Browser, swept: Swept) -> None:
    with Store(swept.home).session() as client:
        experiment = client.get_experiment_by_name("rudder").experiment_id
        (parent,) = client.search_runs([experiment], "tags.kind = 'sweep'")
    run = f"#/experiments/{experiment}/runs/{parent.info.run_id}"
    browser.go(f"{run}/artifacts/report/report.html")
    frame = browser.wait(lambda: browser.one("iframe.mlflow-html-iframe"), "the report's frame")
    browser.driver.switch_to.frame(frame)
    title = browser.wait(lambda: browser.driver.find_element(By.TAG_NAME, "h1"), "its title")
    assert title.text == "Rudder: small"
    assert browser.all("svg, img"), "no picture in the report"
