"""A real browser on a real ``rudder ui``, for the tests and for ``screenshots.py``."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
PATIENCE_S = 60
_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"
_NOT_YET = (NoSuchElementException, StaleElementReferenceException)
_T = TypeVar("_T")


@contextmanager
def rudder_ui(home: Path) -> Iterator[str]:
    """Serve the MLflow UI of a data directory; the address that the command prints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["ui", "--no-open", "--port", str(port), "--home", str(home)]
    served = subprocess.Popen(
        [sys.executable, "-I", "-c", _MAIN, *command], stderr=subprocess.PIPE, text=True
    )
    try:
        assert served.stderr is not None
        line = served.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + served.stderr.read()
        yield found.group()
    finally:
        served.send_signal(signal.SIGTERM)
        served.communicate(timeout=30)


class Browser:
    """A headless Chromium for the UI at ``address``, with a window of ``size`` pixels.

    MLflow's assistant, which opens by itself on a first visit, is kept closed.

    Attributes:
        base: address of the UI.
        start: route of the page that ``rudder ui`` opens, ``#/…``.
    """

    def __init__(self, address: str, size: tuple[int, int] = (1500, 900)) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
        for argument in (
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", f"--window-size={size[0]},{size[1]}",
        ):  # fmt: skip
            options.add_argument(argument)
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which(DRIVER)))
        self.base, _, route = address.partition("#")
        self.start = f"#{route}"
        # A page of the same origin that starts no application.
        self.driver.get(f"{self.base}health")
        self.driver.execute_script(
            "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
        )

    def close(self) -> None:
        self.driver.quit()

    def go(self, route: str) -> None:
        """To another page of the UI, as ``#/…``, loaded anew."""
        self.driver.get("about:blank")
        self.driver.get(self.base + route)

    def wait(self, condition: Callable[[], _T], what: str) -> _T:
        """What ``condition`` answers, once it is true; it may raise while the page is built."""
        waiting = WebDriverWait(
            self.driver, PATIENCE_S, 0.2, ignored_exceptions=(LookupError, *_NOT_YET)
        )
        return waiting.until(lambda _: condition(), f"{what}; the page says: {self.text()}")

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def matching(self, runs: int) -> None:
        """Wait until the table says that so many runs match."""
        self.wait(lambda: f"{runs} matching run" in self.text(), f"{runs} matching runs")

    def load_all(self) -> None:
        """The UI loads 100 runs at a time, and groups those that it has."""
        while more := [each for each in self.all("button") if each.text == "Load more"]:
            before = self.text()
            self.driver.execute_script("arguments[0].click()", more[0])
            self.wait(lambda shown=before: self.text() != shown, "more runs")
            self.wait(
                lambda: not self.all(".ag-overlay-loading-wrapper .ag-react-container"),
                "all loaded",
            )

    def names(self) -> list[str]:
        """Names of the runs and groups in the table, in its order."""
        rows = self.all(".ag-pinned-left-cols-container .ag-row")
        rows.sort(key=lambda row: int(row.get_attribute("row-index") or 0))
        lines = (row.text.splitlines() for row in rows)
        return [next(filter(_is_name, row), "") for row in lines]

    def search(self, query: str) -> None:
        box = self.one("[data-testid='search-box']")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(query, Keys.ENTER)

    def charts(self) -> None:
        """Switch from the table to the charts, and wait until bars are drawn."""
        self.driver.execute_script(
            "arguments[0].click()", self.one("input[name='runs-view-mode'][value='CHART']")
        )
        self.wait(lambda: self.bars(0) > 0, "bars in the first chart")

    def bars(self, chart: int) -> int:
        """How many bars the chart has."""
        plot = self.all(".js-plotly-plot")[chart]
        return len(plot.find_elements(By.CSS_SELECTOR, ".barlayer .point"))

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)


def _is_name(line: str) -> bool:
    return line.startswith("Group: ") or " · " in line
