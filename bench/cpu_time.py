"""CPU seconds of files and of single tests, with their own processes: `PYTHONPATH=bench pytest -p cpu_time [-n 3 …]`.

Unlike wall time they hardly depend on what else the machine does. Imports count for the file that comes first.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

SHOWN = 30
spent: Counter[str] = Counter()  # by file, in the process that prints
by_test: Counter[str] = Counter()
clock = {"last": 0.0}


def seconds() -> float:
    return sum(os.times()[:4])


def pytest_runtest_logstart() -> None:
    clock["last"] = seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    now = seconds()
    report.user_properties.append(("cpu", now - clock["last"]))
    clock["last"] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds_of_phase = [value for name, value in report.user_properties if name == "cpu"][-1:]
    spent[report.nodeid.split("::")[0]] += sum(seconds_of_phase)
    by_test[report.nodeid] += sum(seconds_of_phase)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{sum(spent.values()):8.1f} CPU seconds in {len(spent)} files")
    for name, total in (*spent.most_common(SHOWN), *by_test.most_common(SHOWN)):
        terminalreporter.write_line(f"{total:8.1f} {name}")
