"""Examples in docstrings of public functions, and the Python of the README, run and print what they show."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import click
import pytest
from doctest_files import write_examples

import benchcast as bc
from benchcast.cli import cli
from benchcast.cli.importing import import_group

README = Path(__file__).parents[2] / "README.md"
SOURCE = Path(bc.__file__).parent
MODULES = [
    ".".join(("benchcast", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
NAMES_A_FILE = re.compile(r'"(study|new|checkpoint|results)[/"]')  # of `doctest_files.py`


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that examples name; not to be written to."""
    folder = tmp_path_factory.mktemp("examples")
    write_examples(folder)
    return folder


@pytest.mark.parametrize("name", MODULES)
def test_every_example_of_a_docstring_runs(name, tmp_path, monkeypatch, request):
    module, runner = import_module(name), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    examples = [
        examples_of_object for examples_of_object in doctest.DocTestFinder().find(module) if examples_of_object.examples
    ]
    assert examples
    for number, example in enumerate(examples):
        if NAMES_A_FILE.search(example.docstring):
            shutil.copytree(request.getfixturevalue("files"), tmp_path / str(number))
            monkeypatch.chdir(tmp_path / str(number))
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", sorted(set(bc.__all__) - {"datasets", "__version__"}))
def test_a_public_name_says_what_it_takes_and_returns(name):
    public = getattr(bc, name)
    text = inspect.getdoc(public) or ""
    assert text, "a docstring"
    if inspect.isfunction(public):
        assert "Parameters\n" in text
        assert "Returns\n" in text
        assert ">>> " in text, "an example"
        parts = text.split("Parameters\n")[1].split("Returns\n")[0]
        assert [p for p in inspect.signature(public).parameters if not re.search(rf"\b{p}\b", parts)] == []
    else:
        members = {k: v for k, v in vars(public).items() if inspect.isfunction(v) and not k.startswith("_")}
        assert [k for k, v in members.items() if not inspect.getdoc(v)] == []


def test_every_command_has_its_function_in_the_table_of_the_page():
    page = (README.parent / "docs" / "python.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    listed = {re.match(r"\| `([a-z]+(?: [a-z]+)?)", row[0])[1] for row in rows}
    names = {f"import {n}" for n in import_group.commands} | set(cli.list_commands(click.Context(cli))) - {"import"}
    assert listed == names
    for name in re.findall(r"\bbc\.([\w.]+)", page):
        parts = [part for part in name.rstrip(".").split(".") if part]
        assert parts[0] in bc.__all__, name
        attrgetter(".".join(parts))(bc)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ours = [block for block in blocks if "import benchcast as bc" in block]
    assert ours
    monkeypatch.chdir(tmp_path)
    for block in ours:
        exec(compile(block, "README.md", "exec"), {})
