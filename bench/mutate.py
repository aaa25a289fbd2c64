"""How many small faults the tests notice: `python bench/mutate.py --count 240 --seed 0 [--module law 'methods/*' …]`.

Each mutant is one changed expression of one module, in a copy of the package; only that module's tests run against
it. What survives is printed as the line before and after: either it means the same, or a test is missing.
`--record FILE` notes every outcome and the test that noticed. After tests or modules have changed, `--again FILE`
tries mutants of that record again: those that were killed, of which none may survive now, or with `--survivors` the
others. Each is looked for in the present package by its expression and its line, wherever that stands now; those whose
line is gone are printed as not placed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import fnmatch
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 90  # of CPU time; a mutant that takes longer has been noticed, and so has one that waits ten times as long
ALIKE = 0.8  # share of a line that must be as it was for a mutant to be placed there again
OF_METHODS = [
    "core/test_stacking.py", "core/test_ridge_nonnegative.py", "core/test_descent.py", "core/test_stack.py",
    "core/test_profile.py", "core/test_devices.py", "core/test_methods.py",
]  # fmt: skip
TESTS = {  # the module's own tests first: the first failure ends a run
    "losses/regroup": ["core/test_align.py", "core/test_assemble.py"],
    "methods/law": ["core/test_law.py", "core/test_descent.py"],
    "splits": ["core/test_folds.py", "core/test_evaluate.py"],
    "forecasts/intervals": ["core/test_intervals.py", "core/test_support.py"],
    "methods/": OF_METHODS,  # of a package: every module below it
    "methods/paper": ["core/test_descent.py", "core/test_devices.py", "core/test_methods.py"],
    "methods/head": ["core/test_descent.py", "core/test_devices.py", "core/test_methods.py"],
    "collection/tokenizers": ["collect/test_bounds.py"],
    "study/study": [
        "core/test_status_and_fits.py", "core/test_files.py", "core/test_integrity.py", "core/test_editing.py",
        "core/test_damage.py", "core/test_plausible.py", "core/test_assemble.py", "core/test_support.py",
    ],
}  # fmt: skip
SLOW = (  # tests that take long and notice little that the others do not
    "over_many_small_worlds", "salience_beats_all_token_loss", "take_a_device", "known_salience_is_recovered",
)  # fmt: skip
COMPARE: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.In: [ast.NotIn], ast.NotIn: [ast.In],
    ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
}  # fmt: skip
BINARY: dict[type, list[type]] = {
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult],
    ast.BitAnd: [ast.BitOr], ast.BitOr: [ast.BitAnd], ast.Pow: [ast.Mult], ast.Mod: [ast.FloorDiv],
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One expression of a module, and what stands there instead."""

    module: str
    function: str  # or class; empty outside of any
    node: ast.expr
    text: str

    def applied(self, source: str) -> str:
        """The module with the change."""
        lines = source.encode().splitlines(keepends=True)
        first, last = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
        head, tail = lines[first][: self.node.col_offset], lines[last][self.node.end_col_offset :]
        return b"".join([*lines[:first], head, f"({self.text})".encode(), tail, *lines[last + 1 :]]).decode()

    def place(self, source: str) -> Place:
        """Where it is, in words that survive a move to another file."""
        row = self.node.lineno - 1
        before, after = (text.splitlines()[row].strip() for text in (source, self.applied(source)))
        return Place(self.module, self.function, row + 1, before, after, ast.unparse(self.node), self.text)


@dataclass(frozen=True)
class Place:
    """A mutant in a record."""

    file: str
    function: str
    line: int
    before: str  # the line
    after: str
    was: str  # the expression
    now: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}\n    - {self.before}\n    + {self.after}"

    def likeness(self, other: Place) -> float:
        """How far another place is this one, moved: 1 for the same line in a function of the same name and file."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("was", "now", "before", "after")]
        alike = 1.0
        for a, b in pairs:  # short ones first: most places differ there
            match = difflib.SequenceMatcher(None, a, b, autojunk=False)
            if a != b and (match.real_quick_ratio() < ALIKE or match.quick_ratio() < ALIKE):
                return 0.0
            alike = min(alike, match.ratio())
        home = 0.02 * (self.function == other.function) + 0.01 * (Path(self.file).name == Path(other.file).name)
        return alike - 0.03 + home


def replacements(node: ast.expr) -> Iterator[str]:
    """Other expressions, each a small fault in this one."""
    match node:
        case ast.Compare(left, [op], [right]):
            for other in COMPARE.get(type(op), []):
                yield ast.unparse(ast.Compare(left, [other()], [right]))
        case ast.BinOp(left, op, right):
            for other in BINARY.get(type(op), []):
                yield ast.unparse(ast.BinOp(left, other(), right))
        case ast.BoolOp(op, values):
            yield ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            yield ast.unparse(operand)
        case ast.IfExp(test, body, orelse):
            yield ast.unparse(ast.IfExp(test, orelse, body))
        case ast.Constant(value):
            yield from _constants(value)
        case ast.Call(called, args, keywords):
            yield from (ast.unparse(ast.Call(other, args, keywords)) for other in _functions(called))


def _functions(called: ast.expr) -> Iterator[ast.expr]:
    match called:
        case ast.Name(name) if name in CALLS:
            yield ast.Name(CALLS[name])
        case ast.Attribute(value, name) if name in CALLS:
            yield ast.Attribute(value, CALLS[name])


def _constants(value: object) -> Iterator[str]:
    match value:
        case bool():
            yield repr(not value)
        case int():
            yield from (repr(value + 1), repr(value - 1))
        case float():
            yield repr(value * 2 or 1.0)


def mutants(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module; annotations and f-strings stay as they are."""
    tree = ast.parse(source)
    passed: set[int] = set()
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            passed |= {id(n) for n in ast.walk(part)} if isinstance(part, ast.AST) else set()
        if isinstance(node, ast.JoinedStr):
            passed |= {id(n) for n in ast.walk(node)}
    return [
        Mutant(module, function, node, text)
        for function, node in _expressions(tree)
        if id(node) not in passed
        for text in replacements(node)
    ]


def _expressions(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.expr]]:
    """Every expression with the name of the function or class it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            yield function, node
        yield from _expressions(node, node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else function)


def tests_of(module: str) -> list[str]:
    """Test files of a module, or of the package nearest to it."""
    found = max(
        (name for name in TESTS if module == name or (name[-1] == "/" and module.startswith(name))),
        key=len,
        default="methods/",
    )
    return TESTS[found]


def killer(mutant: Mutant, package: Path, source: str, tests: list[str]) -> str:
    """The first test that fails on the mutant, or what ended the run; empty if it survives."""
    path = package / "benchcast" / f"{mutant.module}.py"
    path.write_text(mutant.applied(source), encoding="utf-8")
    try:
        return first_failure(tests, package)
    finally:
        path.write_text(source, encoding="utf-8")


def first_failure(tests: list[str], package: Path) -> str:
    """The first test that fails, or what ended the run; empty if all pass. They run in a fork, which starts at once."""
    named = package / "failed"
    named.write_text("")
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        _run_tests(tests, package, named)
    end = time.monotonic() + 10 * SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return (named.read_text() or f"ended with {code}") if code else ""
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "took too long"


class _Notes:
    """Writes the name of the first test that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.path.read_text():
            self.path.write_text(report.nodeid)


def _run_tests(tests: list[str], package: Path, named: Path) -> None:
    """In the child: never returns."""
    quiet = os.open(package / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.path.insert(0, str(package))
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(package)
    code = 3
    try:
        files = [str(ROOT / "tests" / name) for name in tests]
        settings = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={package / 'temporary'}"]
        settings += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-k", f"not ({' or '.join(SLOW)})"]
        base = [f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
        code = int(pytest.main([*base, *settings, *files], plugins=[_Notes(named)]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def placed(outcomes: list[dict[str, Any]], sources: dict[str, str], everything: list[Mutant]) -> Iterator[Mutant]:
    """For each mutant of a record the one that is most like it now; tells where the line has changed or is gone."""
    everywhere = [m.place(sources[m.module]) for m in everything]
    for outcome in outcomes:
        old = Place(**{name: outcome[name] for name in Place.__dataclass_fields__})
        rated = [(old.likeness(place), -number) for number, place in enumerate(everywhere)]
        best, number = max(rated, default=(0.0, 0))
        if best < ALIKE:
            print("not placed", old, flush=True)
            continue
        if everywhere[-number].before != old.before:
            print(f"placed {old}\nat {everywhere[-number]}", flush=True)
        yield everything[-number]


def read(package: Path, patterns: list[str]) -> dict[str, str]:
    """Sources of the modules that any of the patterns names; a pattern with a final slash is a package."""
    names = [str(p.relative_to(package).with_suffix("")) for p in sorted(package.rglob("*.py"))]
    wanted = [f"{pattern}*" if pattern[-1] == "/" else pattern for pattern in patterns]
    chosen = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)]
    return {name: (package / f"{name}.py").read_text(encoding="utf-8") for name in chosen}


def main() -> None:
    """Draw, try, count."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=240)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--module", nargs="+", default=list(TESTS), help="draw from these, such as law 'methods/*'")
    options.add_argument("--record", type=Path, default=Path(os.devnull), help="append outcomes to this file")
    options.add_argument("--again", type=Path, help="try the mutants that were killed in this record")
    options.add_argument("--survivors", action="store_true", help="with --again: those that survived instead")
    options.add_argument("--minutes", type=float, default=1e6, help="begin no mutant after this time")
    given = options.parse_args()
    end = time.monotonic() + 60 * given.minutes
    os.chdir(ROOT)
    for name in ("hypothesis", "numpy", "torch"):
        import_module(name)  # once, for all forks

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        shutil.copytree(ROOT / "src" / "benchcast", package / "benchcast", ignore=shutil.ignore_patterns("__pycache__"))
        sources = read(package / "benchcast", ["*"] if given.again else given.module)
        everything = [m for name, source in sources.items() for m in mutants(name, source)]
        if given.again:
            record = [json.loads(line) for line in given.again.read_text(encoding="utf-8").splitlines()]
            drawn = list(placed([o for o in record if o["killed"] != given.survivors], sources, everything))
        else:
            drawn = random.Random(given.seed).sample(everything, min(given.count, len(everything)))
        for tests in {tuple(tests_of(m.module)) for m in drawn}:
            if why := first_failure(list(tests), package):
                sys.exit(f"{(package / 'said').read_text()}{why}: fails without a change")
        counts: Counter[bool] = Counter()
        for mutant in drawn:
            if time.monotonic() > end:
                break
            source = sources[mutant.module]
            by = killer(mutant, package, source, tests_of(mutant.module))
            counts[bool(by)] += 1
            place = mutant.place(source)
            with given.record.open("a", encoding="utf-8") as file:
                print(json.dumps({**asdict(place), "killed": bool(by), "by": by}, ensure_ascii=False), file=file)
            if not by:
                print("survived", place, flush=True)
    print(f"{counts[True]} of {counts.total()} mutants killed ({len(everything)} possible, seed {given.seed})")
    sys.exit(int(bool(given.again and not given.survivors and counts[False])))


if __name__ == "__main__":
    main()
