"""The report of an ugly study: one task, 40 families, long names, Chinese text and intervals as wide as the scale."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

OUTSIDE = """
    [...document.querySelectorAll('.plot svg')].flatMap(svg => {
      const frame = svg.querySelector('.background')?.getBoundingClientRect();
      const bars = [...svg.querySelectorAll('.role-mark.mark-rule line, .role-mark.mark-area path')];
      return bars.filter(bar => {
        if (bar.closest('[clip-path]')) return false; // cut at the frame
        const box = bar.getBoundingClientRect();
        return box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
      }).map(() => svg.closest('[id]').id);
    })
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out(visit, keep, ugly, width):
    page = visit(ugly, width=width, height=900)
    keep(page, f"ugly-{width}", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"
    wide = page.evaluate(
        f"""[...document.querySelectorAll('section, section > *, .card, .fig, #comparison th')]
        .filter(e => e.getBoundingClientRect().right > {width} && !e.closest('.scroll'))
        .map(e => e.tagName + '#' + e.id + '.' + e.className)"""
    )
    assert wide == []


@pytest.mark.parametrize("which", ["ugly", "report"])
def test_bars_end_at_their_frames(visit, request, which):
    """The frames of small figures show the forecasts; intervals may reach further."""
    page = visit(request.getfixturevalue(which))
    assert page.locator(".plot svg .role-mark.mark-rule line").count() > 5, "there are bars to look at"
    assert page.evaluate(OUTSIDE) == []


def test_the_table_of_methods_can_be_read_at_both_widths(visit, ugly):
    for width in (1280, 390):
        page = visit(ugly, width=width)
        box = page.locator("#methods > .scroll").bounding_box()
        assert box["x"] + box["width"] <= width
        hidden = page.eval_on_selector("#methods > .scroll", "box => box.scrollWidth - box.clientWidth")
        assert hidden <= (0 if width == 1280 else 400)


def test_an_interval_that_holds_every_score_is_said_to_tell_nothing(visit, ugly):
    page = visit(ugly)
    method, model = page.evaluate(
        """(data => data.methods.flatMap(m => { const f = data.tasks[0].forecasts[m];
        return f.low.flatMap((x, i) => x !== null && x <= 0 && f.high[i] >= 1 ? [[m, i]] : []); })[0])
        (JSON.parse(document.getElementById('data').textContent))"""
    )
    page.select_option("#method", label=method)
    page.select_option("#model", str(model))
    assert "holds every score from 0% to 100%" in page.inner_text("#answer")


def test_the_axis_says_which_side_is_better(visit, ugly):
    page = visit(ugly)
    words = page.eval_on_selector_all("#law svg text", "all => all.map(t => t.textContent)")
    assert "minus the averaged log-odds (lower is better)" in words


def test_points_of_every_family_can_be_seen(visit, ugly):
    """Past ten families colours come round again: hollow points are drawn by their outline."""
    page = visit(ugly)
    unseen = page.eval_on_selector_all(
        "#law svg .mark-symbol.role-mark path, #card-0 svg .mark-symbol.role-mark path",
        "all => all.filter(p => !p.getAttribute('stroke') || p.getAttribute('stroke') === 'none').length",
    )
    assert unseen == 0
