"""What each package may import, and that what is light stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import benchcast

ROOT = Path(benchcast.__file__).parent
WORDS = (
    "errors",
    "messages",
    "display",
    "choices",
    "records",
    "splits",
    "families",
    "devices",
    "steps",
)  # each imports those before it
MAY_IMPORT = {
    "executors": "",
    "losses": "",
    "methods": "losses",
    "study": "losses",
    "importers": "study",
    "datasets": "study importers",
    "collection": "executors study",
    "forecasts": "losses methods study importers",
    "evaluation": "executors losses methods study forecasts",
    "scaling": "losses methods study forecasts",
    "decisions": "losses methods study importers forecasts scaling",
    "training": "study collection forecasts",
    "reports": "executors losses methods study forecasts evaluation scaling decisions",
    "cli": "executors losses methods study importers datasets collection forecasts evaluation scaling decisions "
    "training reports",
    "callbacks": "training",
    "__main__": "cli",
}
ONLY = {("forecasts", "importers"): {"forecasts.registration"}}  # files that use an import which others do not need
SAME_NAME_ALLOWED = ("cli", "importers.logs", "importers.scores")  # files named after commands and formats
HEAVY = {
    *("huggingface_hub", "torch", "transformers", "vllm", "lmdeploy", "llama_cpp", "ray", "sklearn"),
    *("altair", "vl_convert", "jinja2"),
}
NUMERIC = {"numpy", "scipy", "pyarrow", "safetensors", "rich"}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
    if path != ROOT / "__init__.py"
}


@cache
def imports(module: str, *, lazy: bool = True) -> dict[str, None]:
    """Full names of what a file imports; without `lazy`, only what is imported with it."""
    found: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        when_called = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not lazy and (when_called or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")):
            return
        if isinstance(node, ast.Import):
            found.update({alias.name: None for alias in node.names})
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.update({name: None for a in node.names for name in (node.module, f"{node.module}.{a.name}")})
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(FILES[module].read_text(encoding="utf-8")))
    return found


def own(module: str) -> set[str]:
    """Files of the package that a file imports, anywhere in it; a package's `__init__` only if a name is from there."""
    names = {name.removeprefix("benchcast.") for name in imports(module) if name.startswith("benchcast.")} & set(FILES)
    files = {n for n in names if not any(other.startswith(f"{n}.") for other in names)}
    return (files | {n for n in names if FILES[n].stat().st_size}) - {module}


@pytest.mark.parametrize("module", FILES)
def test_a_file_imports_what_its_package_may(module):
    package = module.split(".")[0]
    allowed = (
        set(WORDS[: WORDS.index(package)]) if package in WORDS else {*WORDS, package, *MAY_IMPORT[package].split()}
    )
    assert not {name for name in own(module) if name.split(".")[0] not in allowed}
    for (package, other), files in ONLY.items():
        if module.startswith(f"{package}.") and module not in files:
            assert not {name for name in own(module) if name.split(".")[0] == other}
    assert not {name for name in imports(module) if name.split(".")[0] in ("lab", "tests", "tools")}
    if not module.startswith("training."):  # a subclass of what it imports; loaded by name only
        assert not {name.split(".")[0] for name in imports(module, lazy=False)} & HEAVY


def test_no_import_leads_back():
    assert [*TopologicalSorter({module: own(module) for module in FILES}).static_order()], "raises for a circle"


def test_a_file_is_found_by_its_name():
    names = [name for name in FILES if not name.startswith(SAME_NAME_ALLOWED) and FILES[name].name != "__init__.py"]
    assert not [name for name, count in Counter(name.split(".")[-1] for name in names).items() if count > 1]
    assert {path.stem for path in ROOT.glob("*.py")} == {*WORDS, "callbacks", "__init__", "__main__"}


def test_the_checker_sees_imports():
    assert {"losses.dataset", "methods.law", "records"} <= own("methods.ridge")
    assert "study.study" in own("cli.fit"), "also inside functions"
    assert "torch" in imports("collection.backends.hf")
    assert "torch" not in imports("collection.backends.hf", lazy=False)


def test_only_the_command_line_prints():
    for module in FILES:
        if not module.startswith("cli"):
            walked = ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8")))
            assert "print" not in {
                n.func.id for n in walked if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            }


def loaded_by(code: str) -> set[str]:
    """Modules in memory after running some code in a fresh interpreter."""
    names = "json.dumps(sorted({n for m in sys.modules for n in (m, m.split('.')[0])}))"
    script = f"{code}\nimport json, sys; sys.stderr.write({names})"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stderr.splitlines()[-1]))


def test_importing_benchcast_loads_nothing_but_the_standard_library():
    assert not loaded_by("import benchcast; benchcast.__version__") & (NUMERIC | HEAVY | {"click"})


def test_help_loads_no_numeric_library():
    run = "try: benchcast.cli.main()\nexcept SystemExit: pass"
    for arguments in (["--help"], ["fit", "--help"], ["collect", "--help"]):
        code = f"import sys; sys.argv = {['benchcast', *arguments]}\nimport benchcast.cli\n{run}"
        assert not loaded_by(code) & (NUMERIC | HEAVY), arguments


def test_a_framework_is_loaded_only_for_its_own_callback():
    assert not loaded_by("import benchcast.callbacks") & {*HEAVY, "lightning", "pytorch_lightning"}


def test_fitting_and_predicting_load_neither_torch_nor_all_of_scipy(synthetic_folder):
    """scipy.stats alone takes longer to load than a command to run."""
    code = (
        "import benchcast as bc\n"
        f"study = bc.Study.open({str(synthetic_folder)!r})\n"
        "fit = bc.fit(study, task='task0')\n"
        "fit.predict(study.losses(study.models_with_losses()[0]))"
    )
    loaded = loaded_by(code)
    assert "scipy.special" in loaded
    assert not loaded & {*HEAVY, "scipy.stats", "scipy.optimize"}


def test_every_public_name_is_there():
    for name in benchcast.__all__:
        assert getattr(benchcast, name) is not None
        assert name in dir(benchcast)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        benchcast.nonsense  # noqa: B018


@pytest.mark.parametrize("module", FILES)
def test_an_assertion_has_no_effect_of_its_own(module):
    """`python -O` drops assertions, so they may call nothing but isinstance and len."""
    walked = ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8")))
    parts = [part for node in walked if isinstance(node, ast.Assert) for part in ast.walk(node.test)]
    assert {ast.unparse(n.func) for n in parts if isinstance(n, ast.Call)} <= {"isinstance", "len"}
