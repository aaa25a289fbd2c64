"""Examples in docstrings of public functions, and the Python of the README, run and print what they show."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import benchcast as bc

README = Path(__file__).parents[2] / "README.md"
MODULES = sorted({"benchcast", "benchcast.choices", *(home for home in bc._HOME.values())})
RESULTS = {"Task", "ModelInfo", "Score", "Forecast", "Forecasts", "Comparison", "BenchcastError", "__version__"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_public_module_run(name):
    failed, _ = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert not failed


def test_every_public_function_says_what_it_takes_and_returns():
    for name in set(bc.__all__) - RESULTS:
        public = getattr(bc, name)
        if inspect.isfunction(public):
            text = inspect.getdoc(public) or ""
            takes = list(inspect.signature(public).parameters)
            if name not in ("load", "remove_models", "rename_model"):
                assert "Parameters\n" in text, name
                assert "Returns\n" in text, name
                assert [p for p in takes if not re.search(rf"\b{p}\b", text)] == [], name


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ours = [block for block in blocks if "import benchcast as bc" in block]
    assert ours
    monkeypatch.chdir(tmp_path)
    for block in ours:
        exec(compile(block, "README.md", "exec"), {})
