"""How many small faults the tests notice: `python bench/mutate.py --count 240 --seed 0 [--module law …]`.

Each mutant is one changed expression of one module, in a copy of the package; only that module's tests run against
it. What survives is printed as the line before and after: either it means the same, or a test is missing.
`--record FILE` notes every outcome. After the tests have changed, `--again FILE` tries mutants of that record again:
those that were killed, of which none may survive now, or with `--survivors` the others.
"""

from __future__ import annotations

import argparse
import ast
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
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 90  # of CPU time; a mutant that takes longer has been noticed, and so has one that waits ten times as long
TESTS = {  # the module's own tests first: the first failure ends a run
    "align": ["core/test_align.py", "core/test_assemble.py"],
    "law": ["core/test_law.py", "core/test_descent.py"],
    "folds": ["core/test_folds.py", "core/test_evaluate.py"],
    "intervals": ["core/test_intervals.py", "core/test_support.py"],
    "methods/stack/averaging": ["core/test_stacking.py", "core/test_stack.py", "core/test_methods.py"],
    "methods/stack/hidden_sets": ["core/test_stack.py", "core/test_stacking.py", "core/test_methods.py"],
    "methods/stack/__init__": ["core/test_stack.py", "core/test_stacking.py", "core/test_methods.py"],
    "bounds": ["collect/test_bounds.py"],
    "store": [
        "core/test_status_and_fits.py", "core/test_files.py", "core/test_integrity.py", "core/test_editing.py",
        "core/test_damage.py", "core/test_plausible.py", "core/test_assemble.py", "core/test_support.py",
    ],
}  # fmt: skip
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
    node: ast.expr
    text: str

    def applied(self, source: str) -> str:
        """The module with the change."""
        lines = source.encode().splitlines(keepends=True)
        first, last = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
        head, tail = lines[first][: self.node.col_offset], lines[last][self.node.end_col_offset :]
        return b"".join([*lines[:first], head, f"({self.text})".encode(), tail, *lines[last + 1 :]]).decode()

    def described(self, source: str) -> str:
        """The module, the line as it was and the line as it is: also the name of the mutant in a record."""
        row = self.node.lineno - 1
        before, after = (text.splitlines()[row].strip() for text in (source, self.applied(source)))
        return f"{self.module}\n    - {before}\n    + {after}"


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
    found = [n for n in ast.walk(tree) if isinstance(n, ast.expr) and id(n) not in passed]
    return [Mutant(module, node, text) for node in found for text in replacements(node)]


def survives(mutant: Mutant, package: Path, source: str) -> bool:
    """Whether the module's tests pass on the mutant; they run in a fork, which starts in no time."""
    path = package / "benchcast" / f"{mutant.module}.py"
    path.write_text(mutant.applied(source), encoding="utf-8")
    try:
        return _passes(mutant.module, package)
    finally:
        path.write_text(source, encoding="utf-8")


def _passes(module: str, package: Path) -> bool:
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        _run_tests(module, package)
    end = time.monotonic() + 10 * SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_tests(module: str, package: Path) -> None:
    """In the child: never returns."""
    quiet = os.open(package / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.path.insert(0, str(package))
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(package)
    code = 3
    try:
        files = [str(ROOT / "tests" / name) for name in TESTS[module]]
        settings = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            f"--basetemp={package / 'temporary'}",
        ]
        code = int(pytest.main([f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), *settings, *files]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Draw, try, count."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=240)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--module", choices=TESTS, nargs="+", default=list(TESTS), help="try only these of the drawn")
    options.add_argument("--record", type=Path, default=Path(os.devnull), help="append outcomes to this file")
    options.add_argument("--again", type=Path, help="try the mutants that were killed in this record")
    options.add_argument("--survivors", action="store_true", help="with --again: those that survived instead")
    given = options.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        shutil.copytree(ROOT / "src" / "benchcast", package / "benchcast", ignore=shutil.ignore_patterns("__pycache__"))
        sources = {m: (package / "benchcast" / f"{m}.py").read_text(encoding="utf-8") for m in TESTS}
        for module in given.module:
            if not _passes(module, package):
                sys.exit(f"{(package / 'said').read_text()}{module}: its tests fail without a change")
        everything = [m for name, source in sources.items() for m in mutants(name, source)]
        drawn = random.Random(given.seed).sample(everything, min(given.count, len(everything)))
        if given.again:
            outcomes = map(json.loads, given.again.read_text(encoding="utf-8").splitlines())
            again = {o["mutant"] for o in outcomes if o["survived"] == given.survivors}
            drawn = [m for m in everything if m.described(sources[m.module]) in again]
        drawn = sorted((m for m in drawn if m.module in given.module), key=lambda m: given.module.index(m.module))
        counts: Counter[tuple[str, bool]] = Counter()
        for mutant in drawn:
            alive = survives(mutant, package, sources[mutant.module])
            counts[mutant.module, alive] += 1
            with given.record.open("a", encoding="utf-8") as record:
                print(json.dumps({"mutant": mutant.described(sources[mutant.module]), "survived": alive}), file=record)
            if alive:
                print("survived", mutant.described(sources[mutant.module]), flush=True)
    for module in given.module:
        print(f"{module}: {counts[module, False]} killed, {counts[module, True]} survived")
    killed = sum(n for (_, alive), n in counts.items() if not alive)
    print(f"{killed} of {len(drawn)} mutants killed ({len(everything)} possible, seed {given.seed})")


if __name__ == "__main__":
    main()
