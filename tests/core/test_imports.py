"""The direction of imports, and that what is light stays light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import benchcast

ROOT = Path(benchcast.__file__).parent

# From the core to the edges: what a module or package may import stands above it.
LAYERS = [
    "errors",
    "extras",
    "records",
    "aggregates",
    "formatting",
    "splits",
    "choices",
    "frames",
    "devices",
    "align",
    "support",
    "solvers",
    "law",
    "metadata",
    "predictors",
    "profile",
    "dataset",
    "task_fit",
    "folds",
    "relatives",
    "assemble",
    "plausible",
    "intervals",
    "learnable",
    "methods",
    "storage",
    "store",
    "all_models",
    "loss_check",
    "bits",
    "fits",
    "editing",
    "fitting",
    "known_scores",
    "aggregation",
    "forecasting",
    "forecaster",
    "executor",
    "comparison",
    "evaluate",
    "ranking",
    "inspection",
    "extrapolation",
    "selection",
    "datasets",
    "texts",
    "scores",
    "presets",
    "logs",
    "creation",
    "importing",
    "registration",
    "bounds",
    "backends",
    "collection",
    "watching",
    "callbacks",
    "graphemes",
    "explanation",
    "explaining",
    "page",
    "plots",
    "reports",
    "cli",
    "__main__",
]
IN_A_FRAMEWORK = ("callbacks.trainer",)  # a subclass of what it imports; asked for by name only
HEAVY = (
    "huggingface_hub",
    "torch",
    "transformers",
    "vllm",
    "lmdeploy",
    "llama_cpp",
    "ray",
    "datasets",
    "sklearn",
    "altair",
    "vl_convert",
    "jinja2",
)


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


@cache
def imported(module: str, *, lazy: bool = True) -> set[str]:
    """Full names of what a module imports; without `lazy`, only what is imported when it is."""
    modules = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not lazy:
            return
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not lazy:
            return
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree_of(module))
    return modules


def own_imports(module: str) -> set[str]:
    """Modules of the package that a module imports, anywhere in it."""
    names = {name.removeprefix("benchcast.") for name in imported(module) if name.startswith("benchcast.")}
    return {name for name in names if path_of(name).is_file()} - {module}


def modules_of_the_package() -> list[str]:
    paths = [p.relative_to(ROOT) for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py"]
    return sorted(".".join(p.with_suffix("").parts).removesuffix(".__init__") for p in paths)


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[0])


def test_every_module_has_a_place():
    assert {name.split(".")[0] for name in modules_of_the_package()} == set(LAYERS)


def test_the_source_tree_lists_them_in_the_same_order():
    page = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = page.split("    src/benchcast/ ")[1].split("\n    lab/")[0].splitlines()[1:]
    names = [word for line in block for word in re.findall(r"^ +((?:\S+(?:\.py|/) )+)", line)[0].split()]
    said = [name.removesuffix(".py").removesuffix("/") for name in names]
    assert [name for name in said if name not in ("embedded", "templates")] == LAYERS[:-1]


@pytest.mark.parametrize("module", modules_of_the_package())
def test_no_import_goes_down(module):
    assert not {name for name in own_imports(module) if layer(name) > layer(module)}


@pytest.mark.parametrize("module", modules_of_the_package())
def test_the_package_never_imports_the_laboratory(module):
    assert not {name for name in imported(module) if name.split(".")[0] == "lab"}


def test_no_module_leads_back_to_itself():
    graph = {module: own_imports(module) for module in modules_of_the_package()}
    assert [*TopologicalSorter(graph).static_order()], "raises where there is a circle"


def test_the_checker_sees_imports():
    assert {"dataset", "law", "records"} <= own_imports("methods.ridge")
    assert "store" in own_imports("cli.forecast"), "also inside functions"
    assert "torch" not in imported("law")


def test_only_the_command_line_prints():
    for module in modules_of_the_package():
        if not module.startswith("cli"):
            walked = ast.walk(tree_of(module))
            calls = {n.func.id for n in walked if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            assert "print" not in calls, module


@pytest.mark.parametrize("module", [m for m in modules_of_the_package() if m not in IN_A_FRAMEWORK])
def test_no_module_imports_a_heavy_library_when_it_is_imported(module):
    names = {name.split(".")[0] for name in imported(module, lazy=False)}
    assert not names & set(HEAVY)


def loaded_by(code: str) -> set[str]:
    """Modules in memory after running some code in a fresh interpreter."""
    script = (
        "import json, sys; sys.stderr.write(json.dumps(sorted({n for m in sys.modules for n in (m, m.split('.')[0])})))"
    )
    ran = subprocess.run([sys.executable, "-c", f"{code}\n{script}"], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stderr.splitlines()[-1]))


NUMERIC = {"numpy", "scipy", "pyarrow", "safetensors", "rich"}


def test_importing_benchcast_loads_nothing_but_the_standard_library():
    assert not loaded_by("import benchcast; benchcast.__version__") & (NUMERIC | set(HEAVY) | {"click"})


def test_help_loads_no_numeric_library():
    run = "try: benchcast.cli.main()\nexcept SystemExit: pass"
    code = f"import sys; sys.argv = ['benchcast', '--help']\nimport benchcast.cli\n{run}"
    assert not loaded_by(code) & (NUMERIC | set(HEAVY))


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


@pytest.mark.parametrize("module", modules_of_the_package())
def test_an_assertion_has_no_effect_of_its_own(module):
    """`python -O` drops assertions, so they may call nothing but isinstance and len."""
    parts = [part for node in ast.walk(tree_of(module)) if isinstance(node, ast.Assert) for part in ast.walk(node.test)]
    assert {ast.unparse(n.func) for n in parts if isinstance(n, ast.Call)} <= {"isinstance", "len"}
