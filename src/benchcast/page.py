"""Plain values → one HTML file: templates with automatic escaping, scripts by hash, nothing from a network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

HEAT_SCRIPTS = ("page.js", "salience.js", "tokens.js", "heat.js")
SCRIPTS = ("page.js", "table.js", "figures.js", "lookup.js", "salience.js", "tokens.js", "heat.js")


def embed(data: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def render(template: str, data: dict[str, Any], *, scripts: tuple[str, ...], figures: bool, **more: Any) -> str:
    """A page from its template; `data` goes in whole for the scripts, `more` for the template alone."""
    from markupsafe import Markup

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
            **more,
        )
    )


def _read(*names: str) -> str:
    folder = files("benchcast") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _vega() -> str:
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _policy(programs: list[str]) -> str:
    """What the page may do: run these very scripts, and reach nothing.

    Vega compiles its expressions, which counts as eval.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(p.encode()).digest()).decode('ascii')}'" for p in programs
    )
    return f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader("benchcast"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
