"""Render one self-contained HTML file: escaped templates, scripts allowed by hash, and no network access."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from benchcast.errors import library

HEAT_SCRIPTS = ("page.js", "salience.js", "tokens.js", "heat.js")
SCRIPTS = ("page.js", "table.js", "figures.js", "lookup.js", "salience.js", "tokens.js", "heat.js")


def embed(data: Any) -> str:
    """JSON that is safe inside a script element: no string in it can close the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def render(template: str, data: dict[str, Any], *, scripts: tuple[str, ...], figures: bool, title: str = "") -> str:
    """Render a page.

    Parameters
    ----------
    template : file name in templates/
    data : plain values for the template; embedded as JSON for the scripts
    scripts : file names in templates/
    figures : include Vega
    title : of the page, where the template has none of its own

    Returns
    -------
    the HTML
    """
    Markup = library("markupsafe", "report").Markup
    early, programs = _read("theme.js"), [_vega()] * figures + [_read(*scripts)]
    return (
        _environment()
        .get_template(template)
        .render(
            data=data,
            embedded=Markup(embed(data)),
            style=Markup(_read("report.css")),
            early=Markup(early),
            programs=[Markup(p) for p in programs],
            policy=_policy([early, *programs]),
            title=title,
        )
    )


def _read(*names: str) -> str:
    folder = files("benchcast.reports") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _vega() -> str:
    bundle: str = library("vl_convert", "report").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _policy(programs: list[str]) -> str:
    """Content security policy that allows only these scripts and no network access.

    'unsafe-eval' is needed because Vega compiles its expressions.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(p.encode()).digest()).decode('ascii')}'" for p in programs
    )
    return f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"


@cache
def _environment() -> Any:
    jinja2 = library("jinja2", "report")
    return jinja2.Environment(
        loader=jinja2.PackageLoader("benchcast.reports"),
        autoescape=jinja2.select_autoescape(default=True, default_for_string=True),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
