"""What pages take from elsewhere is current, the site lists every page, and links of the README lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import benchcast
from benchcast.methods import METHODS
from benchcast.study.study_toml import KEYS, TASK_KEYS
from tools.site import links
from tools.site.markdown import as_markdown
from tools.site.readme import renew_readme
from tools.site.reference import command_line_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_reference_of_the_command_line_is_current() -> None:
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == command_line_page(), "run `python -m lab reference docs`"


def test_the_table_of_the_readme_has_the_numbers_of_the_results() -> None:
    assert renew_readme(README, DOCS / "figures" / "quality.json") == README, "run `python -m lab reference docs`"
    assert README.count("\n| OLMo ladder:") == 1


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 90


@pytest.mark.parametrize("page", links.PAGES)
def test_links_outside_the_site_lead_somewhere(page: str) -> None:
    assert links.broken_links(ROOT / page) == []


def test_a_broken_link_or_anchor_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# A page, of mine\n[a](#a-page-of-mine) [b](#b) [c](c.md) [d](https://x.y)\n<img src="e.svg">\n')
    assert links.broken_links(page) == ["#b: no such heading", "c.md: no such file", "e.svg: no such file"]


def test_a_broken_link_of_the_built_site_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#here">b</a><img src="c.png"><a href="#top">t</a>'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#top">a</a><a href="/a.html">root</a><a href="https://x.y">x</a>')
    assert links.broken_in_site(tmp_path) == [
        "a.html: b.html#here: no such anchor",
        "a.html: c.png: no such file",
        "b.html: /a.html: no such file",
    ]


def test_pages_that_code_and_other_texts_name_exist() -> None:
    folders = ("src", "lab", "tools", "bench", "examples", "tests")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    for path in [*code, *(ROOT / page for page in links.PAGES), *ROOT.glob("*.md"), ROOT / "Makefile"]:
        named = re.findall(r"\bdocs/[\w-]+\.(?:md|png)\b", path.read_text(encoding="utf-8"))
        assert [name for name in named if not (ROOT / name).is_file()] == [], path


def listed(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in listed(part)]


def test_the_site_lists_every_page_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(listed(nav)) == sorted(p.name for p in DOCS.glob("*.md"))


def test_the_page_of_python_has_every_public_name() -> None:
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)}
    assert set(benchcast.__all__) - shown == {"datasets", "__version__"}


def test_concepts_describe_every_method_in_two_sentences() -> None:
    rows = dict(
        re.findall(r"^\| `([\w-]+)` \| (.*) \|$", (DOCS / "concepts.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert rows.keys() == METHODS.keys()
    assert {len(re.findall(r"\.(?: |$)", text.replace("et al.", "et al"))) for text in rows.values()} == {2}


def test_the_page_of_formats_describes_every_key_of_study_toml() -> None:
    page = (DOCS / "formats.md").read_text(encoding="utf-8").split("\n## study.toml\n")[1].split("\n## ")[0]
    assert [key for key in TASK_KEYS if f"| `{key}` |" not in page] == []
    assert [key for key in KEYS if key not in page] == []


def test_pictures_are_there_for_light_and_dark_pages() -> None:
    for page in DOCS.glob("*.md"):
        light = re.findall(r"\((\S+)-light\.svg#gh-light-mode-only\)", text := page.read_text(encoding="utf-8"))
        assert light == re.findall(r"\((\S+)-dark\.svg#gh-dark-mode-only\)", text)
        assert all((DOCS / f"{stem}-{scheme}.svg").is_file() for stem in light for scheme in ("light", "dark"))


def test_how_many_agrees_with_the_learning_curves() -> None:
    """The interval with two families is said to be two to three times as wide as with eight."""
    rows = json.loads((DOCS / "figures" / "learning.json").read_text(encoding="utf-8"))["tables"][0]["rows"]
    width = {row[0]: float(row[-1]) for row in rows}
    assert 2 <= width["2 training families"] / width["8 training families"] <= 3


def test_docstrings_become_markdown() -> None:
    written = (
        "Add.\n\nParameters\n----------\nx, y : numbers,\n    small\n\nReturns\n-------\na number\n\n>>> add(1, 2)\n3"
    )
    shown = "Add.\n\n**Parameters**\n\n- `x`, `y`: numbers,\n    small\n\n**Returns**\n\na number\n\n"
    assert as_markdown(written) == shown + "```pycon\n>>> add(1, 2)\n3\n```"
