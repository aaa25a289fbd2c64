"""The picture of the report in the documentation: its first screen, on the embedded study.

PYTHONPATH=.:tests python tests/browser/picture.py docs/report.png
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchcast.datasets import copy_dataset
from benchcast.evaluation.compare import compare
from benchcast.reports.report import write_report
from conftest import PROGRAMS
from lab.reproduce.png import shrink

WIDTH = 1200


def main(target: Path) -> None:
    program = next(p for p in map(shutil.which, PROGRAMS) if p)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        study = copy_dataset("zoo", Path(folder) / "small-language-models")
        report = Path(folder) / "report.html"
        write_report(report, study, compare(study))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn=yes]")
        end = page.locator("#verdicts .card").nth(3).bounding_box()
        page.screenshot(path=target, clip={"x": 0, "y": 0, "width": WIDTH, "height": end["y"]}, full_page=True)
        browser.close()
    target.write_bytes(shrink(target.read_bytes()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
