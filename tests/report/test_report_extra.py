"""Without altair, vl-convert and jinja2 everything but pages and figures works; those name the extra at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ABSENT = ("altair", "vl_convert", "jinja2", "markupsafe")


def run_without(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, in which the libraries of the extra cannot be imported."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))"
    command = [sys.executable, "-c", f"{hide}\n{code}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def benchcast_without(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_without("from benchcast.cli import main; main()", *arguments)


@pytest.fixture(scope="module")
def fitted(synthetic_folder, tmp_path_factory):
    import shutil

    import benchcast as bc
    from benchcast.forecasts.fit import fit_tasks, store_fits

    root = shutil.copytree(synthetic_folder, tmp_path_factory.mktemp("extra") / "study")
    store_fits(bc.Study.open(root), fit_tasks(root, method="all-token"))
    return root


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "STUDY", "-o", "PAGE"),
        ("explain", "STUDY", "--task", "task0", "--html", "PAGE"),
        ("extrapolate", "STUDY", "--family", "f0", "--to", "params=1B,tokens=1B", "--plot", "PAGE"),
        ("select", "STUDY", "--budget", "4", "--figure", "PAGE"),
        ("demo", "--out", "PAGE"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_page_or_figure_names_the_extra_before_any_work(arguments, fitted, tmp_path):
    page = tmp_path / "page.html"
    ran = benchcast_without(*({"STUDY": fitted, "PAGE": page}.get(a, a) for a in arguments))
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert "is needed here: pip install 'benchcast[report]'" in line
    assert not page.exists()


def test_the_rest_works_without_the_extra(fitted):
    code = f"""
import benchcast as bc
from benchcast.cli import main
study = bc.Study.open({str(fitted)!r})
[getattr(bc, name) for name in bc.__all__]
bc.status(study), bc.predict(study).to_arrow(), bc.explain(study, "task0").by_source()
comparison = bc.compare(study, ["task0"], methods=["all-token"], split="size")
try:
    comparison.plot()
except bc.BenchcastError as error:
    print(error)
"""
    ran = run_without(code)
    assert ran.stderr == ""
    assert ran.stdout.startswith("altair is needed here: pip install 'benchcast[report]'")
