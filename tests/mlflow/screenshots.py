"""Pictures of the newest sweep in the MLflow UI, for the READMEs.

    python -I tests/mlflow/screenshots.py --home rudder-data --out mlflow/images

Needs chromium and chromedriver, and a sweep with its report: ``rudder demo`` makes one.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from browser import Browser, rudder_ui
from PIL import Image

from rudder.home import Home
from rudder.tracking.store import Store
from rudder.tracking.views import SWEEP

SIZE = (1600, 1000)
COLOURS = 64
AT_MOST = 150_000  # bytes
SECTION = "In distribution and out of it"
TRAINING = "workflowType=machine_learning"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    home = Home.resolve(args.home)
    report = f"{route_of_newest_sweep(home)}/artifacts/report/report.html?{TRAINING}"
    with rudder_ui(home.root) as address:
        browser = Browser(address, SIZE)
        try:
            browser.go(browser.start)
            browser.wait(lambda: browser.names(), "groups of runs")
            browser.load_all()
            keep(browser, args.out / "table.png")
            browser.charts()
            keep(browser, args.out / "charts.png")
            browser.go(report)
            frame = browser.wait(lambda: browser.one("iframe.mlflow-html-iframe"), "the report")
            browser.driver.switch_to.frame(frame)
            browser.wait(lambda: browser.one("h2"), "its headings")
            browser.script(
                "[...document.querySelectorAll('h2')]"
                f".find(each => each.textContent.includes('{SECTION}')).scrollIntoView()"
            )
            browser.driver.switch_to.default_content()
            keep(browser, args.out / "report.png")
        finally:
            browser.close()


def route_of_newest_sweep(home: Home) -> str:
    with Store(home).session() as client:
        ids = [each.experiment_id for each in client.search_experiments()]
        newest = client.search_runs(
            ids, SWEEP, max_results=1, order_by=["attributes.start_time DESC"]
        )[0].info
    return f"#/experiments/{newest.experiment_id}/runs/{newest.run_id}"


def keep(browser: Browser, path: Path) -> None:
    """Save what is to be seen, in few colours: the file lies in the repository."""
    time.sleep(3)  # animations
    picture = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png()))
    small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {size / 1000:.0f} kB")
    if size > AT_MOST:
        sys.exit(f"{path} has more than {AT_MOST / 1000:.0f} kB")


if __name__ == "__main__":
    main()
