"""The heat map in a real browser: every script as text, found, hovered and walked through by keyboard."""

from __future__ import annotations

import json
import re

import pytest

from benchcast.cli import main
from conftest import CHINESE, CODE, EMOJI, EVIL, MARKUP, RIGHT_TO_LEFT, hostile_world
from synthetic import write_study

pytestmark = pytest.mark.browser


def open_text(page, called: str) -> None:
    page.fill("#search", called)
    page.locator("#found button").filter(has=page.locator("b", has_text=re.compile(f"^{called}$"))).click()


def shown(page) -> str:
    """The text as it is in the page, without the signs that mark white space."""
    return page.evaluate(
        """(text => { text.querySelectorAll('i').forEach(i => i.remove()); return text.textContent; })
        (document.querySelector('#text').cloneNode(true))"""
    )


@pytest.mark.parametrize(
    ("called", "content"),
    [("chinese", CHINESE), ("code", CODE.replace("\r\n", "\n")), ("emoji", EMOJI), ("markup", MARKUP)],
)
def test_texts_of_every_script_are_shown_whole(visit, keep, called, content):
    page = visit()
    open_text(page, called)
    assert shown(page).rstrip(" ") == content
    assert page.locator("#text img, #text b").count() == 0
    keep(page.locator("#heat"), f"heat-{called}")


def test_right_to_left_text_runs_so_and_its_direction_marks_are_shown(visit, keep):
    page = visit()
    open_text(page, "rtl")
    assert shown(page).rstrip(" ") == RIGHT_TO_LEFT.replace("\u202e", "⟨U+202E⟩"), "what would turn the line is shown"
    assert page.evaluate("getComputedStyle(document.querySelector('#text')).direction") == "rtl"
    keep(page.locator("#heat"), "heat-right-to-left")


def test_no_token_splits_a_character(visit):
    page = visit()
    for called in ("emoji", "chinese"):
        open_text(page, called)
        pieces = page.eval_on_selector_all("#text > span", "all => all.map(s => s.textContent)")
        assert not any("\ufffd" in p or re.search(r"[\ud800-\udbff]$", p) for p in pieces)
    open_text(page, "emoji")
    assert any(
        "👩\u200d👧" in p for p in page.eval_on_selector_all("#text > span", "all => all.map(s => s.textContent)")
    )


def test_white_space_is_marked(visit):
    page = visit()
    open_text(page, "code")
    signs = page.eval_on_selector_all("#text i", "all => all.map(i => i.textContent)")
    assert "⏎" in signs
    assert "⇥" in signs


def test_the_background_follows_the_task(visit):
    page = visit()
    alphas = "all => all.map(s => +s.style.getPropertyValue('--a'))"
    before = page.eval_on_selector_all("#text > span", alphas)
    assert max(before) > 0.2
    page.locator("#heat [data-tasks] label").nth(1).click()
    title = page.inner_text("#text-title")
    after = page.eval_on_selector_all("#text > span", alphas)
    assert (after, title) != (before, "")
    assert page.inner_text("#most tbody tr td") != ""


def test_search_finds_texts_and_marks_the_hits(visit):
    page = visit()
    page.fill("#search", "RETURN")
    assert page.inner_text("#matches").startswith("1 of 24 texts")
    assert "return" in "".join(page.eval_on_selector_all("#text .hit", "all => all.map(s => s.textContent)"))
    page.fill("#search", "nowhere at all")
    assert page.inner_text("#matches").startswith("no text matches")
    assert page.locator("#found button").count() == 0
    page.fill("#search", "")
    assert page.inner_text("#matches") == "24 of 24 texts"
    page.select_option("#source", index=2)
    assert page.inner_text("#matches") == "8 of 24 texts"
    first = page.inner_text("#text-title")
    page.click("#next")
    assert page.inner_text("#text-title") != first
    page.click("#previous")
    assert page.inner_text("#text-title") == first


def test_hovering_a_token_tells_each_familys_loss(visit):
    page = visit()
    page.locator("#text > span").nth(3).hover()
    said = page.inner_text("#token")
    assert re.search(r"salience -?[\d.]+ × the mean", said)
    families = json.loads(page.locator("#data").text_content())["families"]
    rows = page.eval_on_selector_all(
        "#token tbody tr", "rows => rows.map(r => [r.children[0].textContent, r.children[2].textContent])"
    )
    assert [r[0] for r in rows] == families
    assert all(re.fullmatch(r"[\d.]+ nats", r[1]) for r in rows)


def test_arrow_keys_walk_through_the_tokens(visit):
    page = visit()
    page.focus("#text")
    assert page.locator("#text .now").get_attribute("data-unit") == "0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("#text .now").get_attribute("data-unit") == "2"
    page.keyboard.press("End")
    last = page.locator("#text > span").count() - 1
    assert page.locator("#text .now").get_attribute("data-unit") == str(last)
    page.keyboard.press("ArrowRight")
    assert page.locator("#text .now").get_attribute("data-unit") == str(last)
    assert page.locator("#token[role=status]").count() == 1, "a screen reader hears the change"


def test_a_listed_token_opens_its_text(visit):
    page = visit()
    row = page.locator("#most tbody tr").first
    called, piece = row.locator("button").inner_text(), row.locator("mark").inner_text()
    row.locator("button").click()
    assert page.inner_text("#text-title").startswith(called)
    assert page.locator("#text .now").inner_text().strip() == piece.strip()


def test_salience_lies_in_sources_and_kinds(visit):
    page = visit()
    kinds = page.eval_on_selector_all("#by-kind tbody th", "all => all.map(t => t.textContent)")
    assert {"start of a word", "right-to-left script", "Chinese, Japanese, Korean"} <= set(kinds)
    sources = page.eval_on_selector_all("#by-source tbody th", "all => all.map(t => t.textContent)")
    assert sources == [f"{EVIL[i]} source{i}" for i in range(3)]


def test_explain_writes_a_page_that_opens_at_its_text(visit, tmp_path, monkeypatch, capsys):
    world = hostile_world()
    study = write_study(world, tmp_path / "study")
    page_file = tmp_path / "heat.html"
    named = ["--task", world.tasks[0].name, "--text", "emoji", "--html", str(page_file)]
    monkeypatch.setattr("sys.argv", ["benchcast", "explain", str(study.root), *named])
    main()
    assert str(page_file) in capsys.readouterr().out
    page = visit(page_file)
    assert page.inner_text("#text-title").startswith("emoji")
    page.locator("#text > span").nth(1).hover()
    assert "salience" in page.inner_text("#token")
