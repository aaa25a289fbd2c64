"""Licences of what the package needs, as a Markdown table: `python tests/package/licences.py [EXTRA…]`.

Follows the requirements of the installed benchcast through the packages of this environment. Ends with status 1 where
a licence is unknown or would put conditions on a program that uses the package (GPL, AGPL).
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LONGEST = 40  # characters of a licence field that is a name and not the whole text
STRICT = re.compile(r"(?<!L)\bA?GPL", re.IGNORECASE)


def needed(extras: list[str]) -> list[Distribution]:
    """benchcast's requirements and theirs, by name; those that are not installed are left out."""
    needed_packages: dict[str, Distribution] = {}
    waiting = [("benchcast", extra) for extra in ("", *extras)]
    seen = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        needed_packages[canonicalize_name(name)] = package
        for line in package.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(requirement.name), wanted) for wanted in ("", *requirement.extras)]
    return [needed_packages[name] for name in sorted(needed_packages) if name != "benchcast"]


def licence(package: Distribution) -> str:
    """The licence as the package's metadata states it: an SPDX expression, a classifier, or a short field."""
    about = package.metadata
    classifiers = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    field = (about.get("License") or "").strip()
    short = field if len(field) <= LONGEST and "\n" not in field else ""
    return about.get("License-Expression") or short or " / ".join(classifiers) or "unknown"


def main(extras: list[str]) -> int:
    """Print the table."""
    packages = needed(extras)
    lines = [f"| {p.metadata['Name']} | {p.version} | {licence(p)} |" for p in packages]
    print("| package | version | licence |", "|---|---|---|", *lines, sep="\n")  # noqa: T201
    doubtful = [p.metadata["Name"] for p in packages if licence(p) == "unknown" or STRICT.search(licence(p))]
    if doubtful:
        print(f"to be looked at: {', '.join(doubtful)}", file=sys.stderr)  # noqa: T201
    return min(1, len(doubtful))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
