"""The report in a real browser: drawn, switched, sorted, downloaded; on a phone, in the dark, by keyboard."""

from __future__ import annotations

import csv
import io
import re

import pytest

from conftest import EVIL

pytestmark = pytest.mark.browser
LAW_POINTS = "#law svg .mark-symbol.role-mark path"


def rows_of(page, selector: str) -> list[dict[str, str]]:
    """The CSV file behind a button."""
    with page.expect_download() as waiting:
        page.click(selector)
    text = waiting.value.path().read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def data_of(page, path: str):
    return page.evaluate(f"JSON.parse(document.getElementById('data').textContent){path}")


def marks(page, figure: str) -> int:
    """Drawn points of a figure."""
    return page.locator(f"{figure} svg .mark-symbol.role-mark path").count()


def choose_task(page, section: str, i: int) -> None:
    page.locator(f"{section} [data-tasks] label").nth(i).click()


def test_every_figure_is_drawn(visit, keep):
    page = visit()
    keep(page, "first-screen")
    keep(page, "whole-page", full_page=True)
    held = data_of(page, ".models.role").count("test")
    scored = sum(x is not None for x in data_of(page, ".tasks[1].observed"))
    assert held >= 5
    for i in range(2):
        assert marks(page, f"#card-{i}") in (held, held - 1)
    assert marks(page, "#law .plot") >= scored
    assert marks(page, "#multiple-0") in (held, held - 1)
    assert marks(page, "#step-points .plot") >= scored
    assert page.locator("#step-errors svg .mark-line path").count() >= 3
    assert marks(page, "#sources-figure .plot") > 6


def test_the_first_screen_has_forecasts_and_how_far_to_trust_them_and_one_method(visit):
    page = visit(width=1280, height=900)
    above = page.evaluate(
        """[...document.querySelectorAll('main h2, main th, main td, main p, .counts')]
        .filter(e => e.getBoundingClientRect().top < innerHeight && e.getBoundingClientRect().width > 0)
        .map(e => e.innerText).join(' ')"""
    )
    assert "What will the models score?" in above
    assert "How far to trust them" in above
    assert re.search(r"forecasts miss by [\d.]+ points on average, and \d+% of the scores lie inside", above)
    assert {m for m in data_of(page, ".methods") if m in above} == {"stack"}
    assert page.locator("#overview tbody tr").count() == len(data_of(page, ".opening.models"))


def test_a_caption_has_at_most_two_numbers_and_the_rest_on_demand(visit):
    page = visit()
    captions = data_of(page, ".verdicts.stack")
    assert any(caption["more"] for caption in captions)
    for i, caption in enumerate(captions):
        said, more = page.inner_text(f'[data-verdict="{i}"]'), page.locator(f'[data-more="{i}"]')
        assert 1 <= len(re.findall(r"\d+(?:\.\d+)?", said)) <= 2
        assert not more.is_visible()
        if caption["more"]:
            page.locator(f'details:has([data-more="{i}"]) summary').click()
            assert more.inner_text() == caption["more"]
    page.select_option("#method", label="all-token")
    assert page.inner_text('[data-verdict="0"]') == data_of(page, ".verdicts['all-token'][0].short")


def test_methods_come_last_and_start_with_what_compare_says(visit):
    page = visit()
    order = page.eval_on_selector_all("main section", "all => all.map(e => e.id)")
    assert order[:3] == ["forecasts", "verdicts", "lookup"]
    assert set(order[order.index("methods") + 1 :]) <= {"steps", "provenance"}
    assert page.inner_text("#methods p").strip() == data_of(page, ".headline").strip()
    assert "clearly better" not in page.inner_text("#verdicts")


def test_on_a_phone_the_observed_column_is_in_view_and_no_caption_is_cut(visit, keep):
    page = visit(width=390, height=844)
    right = page.evaluate(
        """Math.max(...[...document.querySelectorAll('#answers tr > :last-child')]
        .map(e => e.getBoundingClientRect().right))"""
    )
    assert right <= 390
    cut = page.evaluate(
        """[...document.querySelectorAll('caption, figcaption, .verdict p')]
        .filter(e => e.getBoundingClientRect().width > 0)
        .filter(e => { const range = document.createRange(); range.selectNodeContents(e);
                       return range.getBoundingClientRect().right > 390; }).map(e => e.innerText)"""
    )
    assert cut == []
    keep(page.locator("#lookup"), "phone-lookup")


def test_one_task_fills_the_width(visit, ugly):
    page = visit(ugly, width=1280)
    card, sheet = (page.locator(x).bounding_box() for x in (".card", "#verdicts"))
    assert card["width"] > 0.9 * sheet["width"]


def test_families_are_switched_on_and_off_everywhere(visit):
    page = visit()
    before = marks(page, "#law .plot"), marks(page, "#card-0")
    models_in_family = data_of(page, ".models.family").count(data_of(page, ".families[0]"))
    page.locator("#laws fieldset.families input").first.uncheck()
    page.wait_for_function(f"document.querySelectorAll('{LAW_POINTS}').length <= {before[0] - models_in_family + 1}")
    assert not page.locator("#verdicts fieldset.families input").first.is_checked(), "one state for all figures"
    assert marks(page, "#card-0") < before[1]
    page.locator("#laws fieldset.families button", has_text="all").click()
    page.wait_for_function(f"document.querySelectorAll('{LAW_POINTS}').length === {before[0]}")


def test_roles_are_told_apart_by_shape_and_size_tells_parameters(visit):
    page = visit()
    shapes = page.evaluate(
        f"[...new Set([...document.querySelectorAll('{LAW_POINTS}')].map(p => p.getAttribute('d')))]"
    )
    kinds = {("round" if "A" in d else "square" if "h" in d or "H" in d else "diamond") for d in shapes}
    assert kinds == {"round", "square", "diamond"}
    assert len(shapes) > 3, "several sizes"


def test_hovering_a_point_tells_model_loss_score_and_interval(visit, keep):
    page = visit()
    page.locator(LAW_POINTS).nth(4).hover()
    tip = page.locator("#vg-tooltip-element")
    tip.wait_for(state="visible")
    said = tip.inner_text()
    for word in ("model", "family", "capability", "observed", "forecast", "90% interval", "%"):
        assert word in said
    keep(page, "law-hover")


def test_the_table_switches_measure_marks_the_best_and_sorts(visit):
    page = visit()
    task = data_of(page, ".tasks[0]")
    for measure, best in (("mse", min), ("mae", min), ("spearman", max)):
        page.locator(f'#measure label:has(input[value="{measure}"])').click()
        values = {m: x[measure] for m, x in task["measures"].items() if x[measure] is not None}
        wanted = [m for m, v in values.items() if v == best(values.values())]
        marked = page.evaluate(
            "[...document.querySelectorAll('#comparison tbody tr')].flatMap("
            "tr => tr.children[1].classList.contains('best') ? [+tr.dataset.method] : [])"
        )
        assert [data_of(page, ".methods")[i] for i in marked] == wanted
    page.locator("#measure label", has_text="coverage").click()
    assert "nearest to 90%" in page.inner_text("#comparison-says")
    page.locator("#measure label", has_text="squared").click()

    def order() -> list[str]:
        return page.eval_on_selector_all("#comparison tbody tr", "rows => rows.map(r => r.dataset.method)")

    values = [x["mse"] for x in task["measures"].values()]
    known = sorted((i for i, v in enumerate(values) if v is not None), key=lambda i: values[i])
    last = [str(i) for i, v in enumerate(values) if v is None]
    page.locator("#comparison thead button").nth(1).click()
    assert order() == [*map(str, known), *last]
    assert page.locator("#comparison th[aria-sort=ascending]").count() == 1
    page.locator("#comparison thead button").nth(1).click()
    assert order() == [*map(str, known[::-1]), *last]
    assert page.locator("#comparison th[aria-sort=descending]").count() == 1


def test_every_method_is_explained_where_it_is_chosen_and_compared(visit):
    page = visit()
    about = data_of(page, ".about")
    assert set(about) == set(data_of(page, ".methods"))
    for name, line in about.items():
        assert line in page.inner_text("#comparison")
        page.select_option("#method", label=name)
        assert page.inner_text("#about") == line


def test_the_slider_moves_through_the_steps(visit):
    page = visit()
    steps = data_of(page, ".steps[0].step")

    first = "#step-points svg .mark-symbol.role-mark path"

    page.focus("#step")
    page.keyboard.press("Home")
    assert page.inner_text("#step-is").startswith(f"{steps[0]} of {steps[-1]}")
    start = page.locator(first).first.get_attribute("transform")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(f'#step[aria-valuetext="step {steps[3]}"]')
    page.wait_for_function(f"document.querySelector('{first}').getAttribute('transform') !== '{start}'")
    rows = rows_of(page, '[data-csv="step-points"]')
    assert {r["step"] for r in rows} == {str(steps[3])}


def test_the_task_is_one_for_the_whole_page(visit):
    page = visit()
    choose_task(page, "#sources", 1)
    for box in page.locator("[data-tasks]").all():
        assert box.locator("input").nth(1).is_checked()
    name = data_of(page, ".tasks[1].name")
    assert name in page.inner_text("#law figcaption")
    assert name in page.inner_text("#answer")


def test_a_model_is_looked_up(visit, keep):
    """What will model X score on task Y, how sure is that, and which tokens carry it?"""
    page = visit()
    names = data_of(page, ".models.model")
    i = data_of(page, ".models.role").index("test")
    page.select_option("#model", str(i))
    choose_task(page, "#lookup", 1)
    task = data_of(page, ".tasks[1]")
    forecasts, said = task["forecasts"]["stack"], page.inner_text("#answer")
    assert f"{100 * forecasts['forecast'][i]:.1f}%" in said
    assert f"between {100 * forecasts['low'][i]:.1f}% and {100 * forecasts['high'][i]:.1f}%" in said
    assert f"Observed: {100 * task['observed'][i]:.1f}%" in said
    assert "This model was held out" in said
    assert "How sure: intervals come from" in said
    assert "Most salient tokens:" in said
    assert names[i] in page.inner_text("#answers")
    page.select_option("#model", str(data_of(page, ".models.role").index("train")))
    assert "The fit was trained on this model" in page.inner_text("#answer")
    keep(page.locator("#lookup"), "lookup")


def test_downloads_hold_the_data_of_their_figures(visit):
    page = visit()
    held = data_of(page, ".models.role").count("test")
    cards = rows_of(page, '[data-csv="cards"]')
    assert held - 1 <= len([r for r in cards if r["task"] == data_of(page, ".tasks[0].name")]) <= held
    methods, tasks = data_of(page, ".methods"), data_of(page, ".tasks")
    comparison = rows_of(page, '[data-csv="comparison"]')
    assert len(comparison) == len(methods) * len(tasks)
    assert float(comparison[0]["mse"]) == tasks[0]["measures"][methods[0]]["mse"]
    everything = rows_of(page, '[data-csv="lookup"]')
    assert len(everything) == len(methods) * len(tasks) * len(data_of(page, ".models.model"))


@pytest.mark.parametrize(
    "names",
    [
        ("multiples", "law", "step-points", "step-errors", "sources-figure"),
        ("heat-text", "heat-tokens", "heat-groups", "models", "provenance"),
    ],
)
def test_every_figure_has_its_data_to_download(visit, names):
    page = visit()  # a page of its own each: chromium stops after ten downloads in a row
    rows_by_figure = {name: rows_of(page, f'[data-csv="{name}"]') for name in names}
    assert all(rows_by_figure.values())
    if "law" in names:
        assert {r["method"] for r in rows_by_figure["law"]} == {"stack"}
    if "provenance" in names:
        assert {"benchcast", "seed", "split", "texts.jsonl"} <= {r["what"] for r in rows_by_figure["provenance"]}


def test_no_cell_of_a_download_is_a_formula(visit):
    page = visit()
    for name in ("models", "lookup", "heat-text", "comparison"):
        for row in rows_of(page, f'[data-csv="{name}"]'):
            for cell in row.values():
                number = re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)
                assert number or not cell.startswith(("=", "+", "-", "@")), cell
    models = {r["model"] for r in rows_of(page, '[data-csv="models"]')}
    assert any(m.startswith("'=1+1") for m in models), "the name is there, disarmed"


def test_data_of_a_figure_unfolds_as_a_table(visit):
    page = visit()
    page.locator('details[data-rows="law"] summary').click()
    table = page.locator('details[data-rows="law"] table')
    table.wait_for()
    first = table.locator("tbody tr").count()
    page.locator("#laws fieldset.families input").first.uncheck()
    page.wait_for_function(f"document.querySelectorAll('details[data-rows=law] tbody tr').length < {first}")


def test_hostile_names_show_as_text(visit):
    page = visit()
    for name in EVIL[:3]:
        assert name in page.inner_text("body")
    assert page.locator("img, iframe, object").count() == 0
    assert page.locator("svg[onload]").count() == 0
    assert "{{7*7}}" in page.inner_text("body")
    page.locator(LAW_POINTS).first.hover()
    tip = page.locator("#vg-tooltip-element")
    tip.wait_for(state="visible")
    assert tip.locator("script, img, svg").count() == 0


def test_a_phone_shows_all_without_scrolling_sideways(visit, keep):
    page = visit(width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for section in page.locator("section").all():
        box = section.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    wide = page.evaluate(
        """[...document.querySelectorAll('.plot svg')].filter(s => s.getBoundingClientRect().right > 391)
        .map(s => s.closest('[id]').id)"""
    )
    assert wide == []
    page.locator("#text span").first.click()
    assert "salience" in page.inner_text("#token")
    keep(page, "phone", full_page=True)


def test_dark_follows_the_system_and_the_switch(visit, keep):
    page = visit(scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate(ground)
    keep(page, "dark")
    page.select_option("#theme", "light")
    assert page.evaluate(ground) != dark
    page.reload()
    page.wait_for_selector("html[data-drawn=yes]")
    assert page.evaluate("document.documentElement.dataset.theme") == "light", "the choice is kept"
    page.select_option("#theme", "auto")
    assert page.evaluate(ground) == dark


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: list[float], b: list[float]) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(visit, scheme):
    page = visit(scheme=scheme)

    def colour(name: str) -> list[float]:
        page.evaluate(f"document.body.style.setProperty('outline-color', 'var({name})')")
        return [float(x) for x in re.findall(r"[\d.]+", page.evaluate("getComputedStyle(document.body).outlineColor"))][
            :3
        ]

    sheet, ink = colour("--sheet"), colour("--ink")
    for name in ("--ink", "--dim", "--link"):
        assert contrast(colour(name), sheet) >= 4.5, name
        assert contrast(colour(name), colour("--page")) >= 4.5, name
    for i in range(10):
        assert contrast(colour(f"--c{i}"), sheet) >= 2, f"family colour {i}"
    strength = float(page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--strength')"))
    for name in ("--heat", "--cold"):
        hot = [
            float(x)
            for x in page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{name}')").split()
        ]
        blend = [strength * h + (1 - strength) * s for h, s in zip(hot, sheet, strict=True)]
        assert contrast(ink, blend) >= 4.5, f"a token at full {name}"


def test_every_control_has_a_name_and_every_figure_a_description(visit):
    page = visit()
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, select, input, summary, a[href], [role=region], [role=application]')]
        .filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
          || (e.labels && e.labels.length) || e.textContent.trim())).map(e => e.outerHTML.slice(0, 90))"""
    )
    assert nameless == []
    labels = page.eval_on_selector_all("[role=img]", "all => all.map(e => e.getAttribute('aria-label'))")
    assert all(len(label) > 15 for label in labels)
    twice = page.evaluate(
        """(ids => ids.filter((x, i) => ids.indexOf(x) !== i))([...document.querySelectorAll('[id]')].map(e => e.id))"""
    )
    assert twice == [], "ids are unique"
    assert page.locator("main h1, header h1").count() == 1
    assert page.locator("table:not(:has(caption))").count() == 0


def test_the_keyboard_reaches_everything_in_order(visit):
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", "the way past the header comes first"
    seen = []
    for _ in range(400):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "document.activeElement === document.body ? null : document.activeElement.closest('section')?.id ?? 'top'"
        )
        if here is None:
            break
        seen.append(here)
    order = list(dict.fromkeys(seen))
    assert order == [
        "top",
        "forecasts",
        "verdicts",
        "lookup",
        "laws",
        "heat",
        "sources",
        "members",
        "methods",
        "steps",
        "provenance",
    ]


def test_printed_pages_are_light_and_whole(visit, keep, tmp_path):
    page = visit(scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden()
    keep(page, "print", full_page=True)
    assert page.pdf().startswith(b"%PDF")
