"""The documentation site in a real browser, at the width of a laptop and of a phone; `make docs` builds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
SITE = Path(__file__).parents[2] / "site"
PAGES = ("index", "tutorial", "concepts", "lm-eval", "how-many", "cli", "python", "formats", "results", "performance")
BROKEN = "[...document.images].filter(i => i.offsetParent && !(i.complete && i.naturalWidth)).map(i => i.src)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Quiet(SimpleHTTPRequestHandler):
    """Serve files without a log."""

    def log_message(self, *what: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the built site: its search works only where pages are served."""
    if not SITE.is_dir():
        pytest.skip("the site is not built; `make docs` does it")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen_and_fetch_nothing_from_elsewhere(
    browser: Any, site: str, keep: Callable[..., None], width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("request", lambda r: None if r.url.startswith((site, "data:", "blob:")) else wrong.append(r.url))
    page.on("response", lambda r: None if r.ok or r.status == 304 else wrong.append(f"{r.status} {r.url}"))
    for name in PAGES:
        page.goto(f"{site}/{name}.html", wait_until="load")
        assert page.evaluate(OVERFLOW) <= 0, name
        assert page.evaluate(BROKEN) == [], name
        keep(page, f"site-{name}-{width}-{scheme}")
    context.close()
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_shows_the_pictures_of_its_colours_only(browser: Any, site: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{site}/concepts.html")
    shown = page.evaluate("[...document.images].filter(i => i.offsetParent).map(i => i.src)")
    assert len(shown) == 6
    assert all(f"-{scheme}.svg" in src for src in shown)
    context.close()


@pytest.mark.parametrize("name", ["concepts", "tutorial"])
def test_drawings_are_whole_on_a_phone(browser: Any, site: str, name: str) -> None:
    """No part of a drawing has to be scrolled to, and none is shrunk to less than nine tenths."""
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(f"{site}/{name}.html", wait_until="load")
    drawings = "[...document.images].filter(i => i.offsetParent && i.src.includes('.svg'))"
    wide = page.evaluate(f"{drawings}.filter(i => i.getBoundingClientRect().right > innerWidth).map(i => i.src)")
    small = page.evaluate(f"{drawings}.filter(i => i.width < 0.9 * i.naturalWidth).map(i => i.src)")
    page.close()
    assert (wide, small) == ([], [])


def test_the_copied_text_of_a_block_has_commands_alone(browser: Any, site: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{site}/undo.html", wait_until="load")
    page.locator("[data-clipboard-target]").nth(1).click()
    copied = page.evaluate("navigator.clipboard.readText()")
    context.close()
    assert [line for line in copied.splitlines() if line.strip()] == [
        "benchcast remove study --model 'ash-50M@*' --dry-run",
        "benchcast remove study --model 'ash-50M@*'",
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_search_finds_a_page_and_leads_to_it(browser: Any, site: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(f"{site}/index.html")
    page.locator(".md-search__button:visible, [for=__search]:visible").first.click()
    page.get_by_role("combobox", name="Search").fill("how good it is")
    page.get_by_role("option").first.wait_for(timeout=20_000)
    page.keyboard.press("Enter")
    page.wait_for_url("**/results.html*")
    page.close()
