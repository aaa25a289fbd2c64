"""Build the package and install it as users do, in clean environments; `make test-package`. Standard library only.

    python tests/package/check.py                  wheel and sdist, uvx, pipx, types; newest and lowest dependencies
    python tests/package/check.py --python python3.13 --dist dist        the wheel in DIST on another Python
    python tests/package/check.py --smoke          a comparison of two methods in place of the whole demo

Prints one line for each case and ends with status 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMOKE = """
from pathlib import Path
import benchcast as bc
from benchcast.reports.report import write_report
study = bc.datasets.load_zoo()
comparison = bc.compare(study, ["code"], split="size", methods=["label-token", "all-token"])
print(comparison.to_arrow().num_rows, "rows")
write_report(Path("report.html"), study, comparison)
"""
USER = """
import benchcast as bc

study = bc.datasets.load_zoo()
fit = bc.fit(study, task="code")
{}
"""
RIGHT, WRONG = "number: float = fit.predict(study.losses('a')).accuracy", "word: str = study.losses('a').counts"


class FailedError(Exception):
    """A case failed; the message says how."""


def run(*command: object, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Standard output of a command; FailedError with its last lines."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FailedError(f"{Path(str(command[0])).name} {command[1]} …: {(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


@dataclass(frozen=True)
class Bench:
    """Where the cases work: a folder, the Python under test, uv, and what was built."""

    folder: Path
    python: str
    uv: Path
    wheel: Path
    smoke: bool

    def environment(self, name: str) -> Path:
        """The Python of a new, empty environment."""
        target = self.folder / name
        run(self.uv, "venv", "--quiet", "--seed", "--python", self.python, target)
        return target / "bin" / "python"

    def works(self, python: Path, name: str) -> None:
        """Requirements agree, and the demo runs outside the checkout."""
        run(python, "-m", "pip", "check")
        self.demo([python.with_name("benchcast")], name, python)

    def demo(self, command: list[object], name: str, python: Path | None = None) -> None:
        """The demo, or with --smoke a part of it where a Python is at hand, writes a report."""
        work = self.folder / f"{name}-work"
        work.mkdir()
        if self.smoke:
            run(*command, "--version", folder=work)
        if self.smoke and python is not None:
            run(python, "-c", SMOKE, folder=work)
        elif not self.smoke:
            run(*command, "demo", "--out", "demo", folder=work)
        if not list(work.rglob("*.html")) and (python is not None or not self.smoke):
            raise FailedError("no report was written")


def wheel_with_pip(bench: Bench) -> None:
    python = bench.environment("wheel")
    run(python, "-m", "pip", "install", "--quiet", f"{bench.wheel}[report]")
    bench.works(python, "wheel")


def sdist_with_pip(bench: Bench) -> None:
    python = bench.environment("sdist")
    (sdist,) = bench.wheel.parent.glob("*.tar.gz")
    run(python, "-m", "pip", "install", "--quiet", f"{sdist}[report]")
    bench.works(python, "sdist")


def lowest_versions(bench: Bench) -> None:
    """Every direct dependency in the lowest version that pyproject.toml allows and that has a wheel for this Python."""
    python = bench.environment("lowest")
    how = ["--quiet", "--python", python, "--resolution", "lowest-direct", "--only-binary", ":all:"]
    run(bench.uv, "pip", "install", *how, f"{bench.wheel}[report]")
    bench.works(python, "lowest")


def without_report(bench: Bench) -> None:
    """Without [report] the demo says in one line what is missing, and everything else is there."""
    python = bench.environment("core")
    run(python, "-m", "pip", "install", "--quiet", bench.wheel)
    run(python, "-m", "pip", "check")
    run(python.with_name("benchcast"), "datasets")
    command = [str(python.with_name("benchcast")), "demo", "--out", str(bench.folder / "none")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    if refused.returncode != 1 or refused.stderr.count("\n") != 1 or "benchcast[report]" not in refused.stderr:
        raise FailedError(f"not one line about [report]: {refused.stderr}")


def uvx(bench: Bench) -> None:
    bench.demo(
        [bench.uv, "tool", "run", "--python", bench.python, "--from", f"{bench.wheel}[report]", "benchcast"], "uvx"
    )


def pipx(bench: Bench) -> None:
    home = {"PIPX_HOME": str(bench.folder / "pipx-home")}
    os.environ.update(home)
    command = [bench.uv, "tool", "run", "pipx", "run", "--python", bench.python, "--spec", f"{bench.wheel}[report]"]
    bench.demo([*command, "benchcast"], "pipx")


def typed(bench: Bench) -> None:
    """mypy in another project reads the package's types: a right use passes, a wrong one does not."""
    python = bench.environment("typed")
    run(bench.uv, "pip", "install", "--quiet", "--python", python, bench.wheel, "mypy")
    project = bench.folder / "project"
    project.mkdir()
    for name, line in {"right": RIGHT, "wrong": WRONG}.items():
        (project / f"{name}.py").write_text(USER.format(line), encoding="utf-8")
    run(python, "-m", "mypy", "--strict", "right.py", folder=project)
    try:
        run(python, "-m", "mypy", "--strict", "wrong.py", folder=project)
    except FailedError as error:
        if "Incompatible types in assignment" not in str(error):
            raise
    else:
        raise FailedError("mypy did not notice a wrong type: is py.typed in the wheel?")


CASES: tuple[Callable[[Bench], None], ...] = (
    wheel_with_pip,
    sdist_with_pip,
    lowest_versions,
    without_report,
    uvx,
    pipx,
    typed,
)


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from it; the wheel's path."""
    tool = folder / "build-tool"
    subprocess.run([sys.executable, "-m", "venv", tool], check=True)
    run(tool / "bin" / "python", "-m", "pip", "install", "--quiet", "build")
    run(tool / "bin" / "python", "-m", "build", "--outdir", folder / "dist", ROOT)
    return next((folder / "dist").glob("*.whl"))


def install_uv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder / "uv-tool"], check=True)
    run(folder / "uv-tool" / "bin" / "python", "-m", "pip", "install", "--quiet", "uv")
    return folder / "uv-tool" / "bin" / "uv"


def main() -> int:
    """Run the cases and print what became of each."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("cases", nargs="*", help="names of cases; default: all")
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("--dist", type=Path, help="folder with a wheel and an sdist; default: build them")
    arguments.add_argument("--smoke", action="store_true", help="two methods on one task in place of the demo")
    given = arguments.parse_args()
    known = {case.__name__: case for case in CASES}
    folder = Path(tempfile.mkdtemp(prefix="benchcast-package-"))
    failed = 0
    try:
        wheel = next(given.dist.resolve().glob("*.whl")) if given.dist else build(folder)
        bench = Bench(folder, given.python, install_uv(folder), wheel, given.smoke)
        version = run(given.python, "-c", "import sys; print(sys.version.split()[0])").strip()
        for name in given.cases or known:
            began = time.monotonic()
            try:
                known[name](bench)
                outcome = "ok"
            except FailedError as error:
                outcome, failed = f"FAILED: {error}", failed + 1
            print(f"Python {version}  {name:16} {time.monotonic() - began:5.0f} s  {outcome}", flush=True)  # noqa: T201
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
