"""Every command of docs/lm-eval.md runs as it stands on the page, with the output that is shown."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from log_files import LIGHT, NEW

from tools.site.pages import steps, write_shown

PAGE = (Path(__file__).parents[2] / "docs" / "lm-eval.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def place(cli, tmp_path_factory) -> Path:
    """The folder after all commands of the page."""
    root = tmp_path_factory.mktemp("page")
    shutil.copytree(NEW, root / "results")
    shutil.copytree(LIGHT, root / "light")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for line, shown in steps(PAGE):
            words = shlex.split(line)
            if words[0] == "cat":
                write_shown(line, shown)
            elif words[0] == "benchcast":
                ran = cli(*words[1:])
                assert ran.code == 0, (line, ran.err)
                assert not shown or ran.out.splitlines() == shown, line
            else:
                assert words[0] in ("lm_eval", "lighteval"), line
    return root


def test_every_command_of_the_page_runs(place):
    assert (place / "report.html").is_file()
    assert "items = 0.5" in (place / "half" / "study.toml").read_text()
    assert "models/reed-d,pond," in (place / "study" / "scores.csv").read_text()
