"""Run a script as on a machine that has torch, transformers and numpy, what these need, and no other package.

python tests/collect/gpu_machine.py bench/collect.py --tiny
"""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import sys
from pathlib import Path
from typing import Any

THERE = ("torch", "transformers", "numpy")


def main() -> None:
    absent = absent_modules()
    sys.meta_path[:] = [Without(finder, absent) for finder in sys.meta_path]
    script = Path(sys.argv[1]).resolve()
    sys.argv = [str(script), *sys.argv[2:]]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


class Without:
    """A finder that does not find some modules."""

    def __init__(self, finder: Any, absent: frozenset[str]) -> None:
        self.finder, self.absent = finder, absent

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.split(".")[0] in self.absent else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def absent_modules() -> frozenset[str]:
    """Installed modules that are of no package that the three need; benchcast itself is read from src."""
    needed = needed_packages()
    of_module = importlib.metadata.packages_distributions()
    return frozenset(m for m, names in of_module.items() if needed.isdisjoint(map(canonical, names))) - {"benchcast"}


def needed_packages() -> set[str]:
    found: set[str] = set()
    waiting = list(THERE)
    while waiting:
        name = canonical(waiting.pop())
        try:
            requirements = [] if name in found else importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        waiting += [re.split(r"[^A-Za-z0-9._-]", r, maxsplit=1)[0] for r in requirements if "extra ==" not in r]
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
