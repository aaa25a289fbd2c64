"""A real browser, pages that tell of every error and request, and a study with hostile names and many scripts.

Screenshots go to tests/browser/screenshots, to be looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchcast.evaluation.compare import compare
from benchcast.records import Text, TextSet
from benchcast.reports.report import write_report
from synthetic import Plan, World, make_world, write_study

SCREENSHOTS = Path(__file__).parent / "screenshots"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

EVIL = ("<script>owned=1</script>", "</script><img src=x onerror=owned=2>", '"><svg onload=owned=3>', "=1+1", "{{7*7}}")
CHINESE = "问：在笛子、碟子当中，属于乐器的是哪个？\n答：笛子"
CODE = 'def f(x):\n\treturn x[1:] if x < 3 else "</script>"\r\n'
EMOJI = "a 👩\u200d👧 b 👍🏽 c 🇩🇪 d ❤\ufe0f"
RIGHT_TO_LEFT = "שלום עולם مرحبا (abc) \u202egnp.exe 123"
MARKUP = "<b>bold?</b> <img src=x onerror=owned=4> &amp;"
SCRIPTS = {"chinese": CHINESE, "code": CODE, "emoji": EMOJI, "rtl": RIGHT_TO_LEFT, "markup": MARKUP}

DRAWN = "html[data-drawn=yes], html[data-heat=yes]:not(:has(#verdicts))"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs chromium and Playwright; run by `make test-browser`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "browser" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="the browser runs by `make test-browser`"))


def _rewrite(text: Text, called: str, content: str) -> Text:
    """Another text of as many bytes, so that all losses still belong to it; tokens may now split characters."""
    room = len(text.text.encode()) - len(content.encode())
    assert room >= 0, "the synthetic text is too short"
    return replace(text, id=called, text=content + " " * room)


def hostile_world() -> World:
    """A synthetic world whose names are attacks and formulas, and whose texts are of many scripts."""
    world = make_world(Plan(seed=3, families=5, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))
    names = {m.model: EVIL[i % len(EVIL)] + m.model for i, m in enumerate(world.models)}
    sources = {f"source{i}": EVIL[i] + f" source{i}" for i in range(3)}
    tasks = {t.name: EVIL[i] + t.name for i, t in enumerate(world.tasks)}
    texts = [replace(t, source=sources[t.source]) for t in world.texts]
    roomy = sorted(range(len(texts)), key=lambda i: -len(texts[i].text.encode()))
    for i, (called, content) in zip(roomy, SCRIPTS.items(), strict=False):
        texts[i] = _rewrite(texts[i], called, content)
    evil = roomy[len(SCRIPTS)]
    texts[evil] = replace(texts[evil], id=EVIL[1])
    return replace(
        world,
        texts=TextSet.of(texts),
        models=tuple(replace(m, model=names[m.model], family=EVIL[int(m.family[-1])] + m.family) for m in world.models),
        losses=tuple(replace(x, model=names[x.model]) for x in world.losses),
        scores=tuple(replace(s, model=names[s.model], task=tasks[s.task]) for s in world.scores[:-1]),
        tasks=tuple(replace(t, name=tasks[t.name], sources=tuple(sources[s] for s in t.sources)) for t in world.tasks),
    )


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the hostile study."""
    folder = tmp_path_factory.mktemp("hostile")
    study = write_study(hostile_world(), folder / "study")
    write_report(folder / "report.html", study, compare(study, methods="all"))
    return folder / "report.html"


LONG = "a-very-long-name-of-a-family-of-language-models-without-any-space-in-it"


def ugly_world() -> World:
    """One task with noisy scores, 40 families with names that are long or Chinese, and Chinese texts."""
    world = make_world(Plan(seed=5, families=40, sizes=1, checkpoints=1, tasks=1, texts_per_source=3, n_items=6))
    families = {m.family: f"{LONG}-{i}" if i % 2 else f"语言模型系列第{i}号" for i, m in enumerate(world.models)}
    names = {m.model: f"{families[m.family]}-{m.model}" for m in world.models}
    task, source = "一个名字很长的任务-" + LONG, "来源-" + LONG
    texts = [replace(t, source=source if t.source == "source0" else t.source) for t in world.texts]
    roomy = max(range(len(texts)), key=lambda i: len(texts[i].text.encode()))
    texts[roomy] = _rewrite(texts[roomy], "中文-" + LONG, CHINESE)
    split = {m.model: ("test", "train", "train", "validation")[i % 4] for i, m in enumerate(world.models)}
    return replace(
        world,
        texts=TextSet.of(texts),
        models=tuple(
            replace(m, model=names[m.model], family=families[m.family], split=split[m.model]) for m in world.models
        ),
        losses=tuple(replace(x, model=names[x.model]) for x in world.losses),
        scores=tuple(replace(s, model=names[s.model], task=task) for s in world.scores),
        tasks=tuple(replace(t, name=task, sources=(source,)) for t in world.tasks),
    )


@pytest.fixture(scope="session")
def ugly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the ugly study."""
    folder = tmp_path_factory.mktemp("ugly")
    study = write_study(ugly_world(), folder / "study")
    write_report(folder / "report.html", study, compare(study, methods="all"))
    return folder / "report.html"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    program = next((p for p in map(shutil.which, PROGRAMS) if p), None)
    assert program, "no chromium on the path; `make test-browser` installs it"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, report: Path) -> Iterator[Callable[..., Any]]:
    """Open a page and wait until its figures are drawn; at the end, nothing may have failed or been fetched."""
    pages, wrong = [], []

    def open_page(
        path: Path = report, width: int = 1200, height: int = 900, scheme: str = "light", ready: str = DRAWN
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        page = context.new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: wrong.append(str(e)))
        allowed = (path.as_uri(), "blob:")
        page.on("request", lambda r: None if r.url.startswith(allowed) else wrong.append(r.url))
        page.goto(path.as_uri())
        page.wait_for_selector(ready, timeout=60_000)
        pages.append(page)
        return page

    yield open_page
    owned = [p.evaluate("typeof owned === 'undefined' ? null : owned") for p in pages]
    for page in pages:
        page.context.close()
    assert wrong == []
    assert set(owned) <= {None}, "a text ran as a script"


@pytest.fixture
def keep() -> Callable[[Any, str], None]:
    """Keep a picture of an element or page under a name."""
    SCREENSHOTS.mkdir(exist_ok=True)

    def take(what: Any, name: str, **how: Any) -> None:
        what.screenshot(path=SCREENSHOTS / f"{name}.png", **how)

    return take
