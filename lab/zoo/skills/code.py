"""What a short Python program prints: arithmetic, strings, lists, conditions, loops, functions and dicts."""

from lab.zoo.skills.common import Dice, Item, item_skill
from lab.zoo.skills.words import PLAIN_WORDS

VARIABLES = [
    "a",
    "b",
    "c",
    "d",
    "k",
    "m",
    "n",
    "p",
    "q",
    "r",
    "s",
    "t",
    "u",
    "v",
    "w",
    "x",
    "y",
    "z",
    "age",
    "cost",
    "count",
    "left",
    "num",
    "size",
    "sum1",
    "total",
    "val",
]
CUE = "\n# prints:"


def small(dice: Dice) -> int:
    roll = dice.random()
    return dice.between(0, 9) if roll < 0.55 else dice.between(0, 30) if roll < 0.85 else dice.between(0, 99)


def assign(dice: Dice) -> tuple[str, object]:
    """One to three assignments, each using the one before."""
    names = dice.sample(VARIABLES, dice.pick((1, 2, 2, 3, 4)))
    value = small(dice)
    lines = [f"{names[0]} = {value}"]
    for before, name in zip(names, names[1:], strict=False):
        operand = small(dice)
        sign = dice.pick("++-*")
        operand = operand % 5 if sign == "*" else operand
        value = value + operand if sign == "+" else value - operand if sign == "-" else value * operand
        lines.append(f"{name} = {before} {sign} {operand}")
    lines.append(f"print({names[-1]})")
    return "\n".join(lines), value


def divide(dice: Dice) -> tuple[str, object]:
    x, (y, by) = (
        dice.between(0, 60),
        dice.pick(((2, "//"), (3, "//"), (5, "//"), (10, "//"), (2, "%"), (3, "%"), (10, "%"))),
    )
    name = dice.pick(VARIABLES)
    return f"{name} = {x}\nprint({name} {by} {y})", x // y if by == "//" else x % y


def string(dice: Dice) -> tuple[str, object]:
    name, word, times = dice.pick(VARIABLES), dice.pick(PLAIN_WORDS), dice.between(2, 3)
    other = dice.pick(PLAIN_WORDS)
    at = dice.between(0, len(word) - 1)
    expression, value = dice.pick(
        (
            (f"len({name})", len(word)),
            (f"{name}.upper()", word.upper()),
            (f"{name}[{at}]", word[at]),
            (f"{name}[-1]", word[-1]),
            (f"{name}[:{at + 1}]", word[: at + 1]),
            (f"{name}[::-1]", word[::-1]),
            (f"{name} * {times}", word * times),
            (f'{name} + "{other}"', word + other),
            (f'{name}.count("{word[at]}")', word.count(word[at])),
            (f"{name}.title()", word.title()),
            (f'{name}.replace("{word[at]}", "x")', word.replace(word[at], "x")),
            (f'"{word[at]}" in {name}', word[at] in word),
            (f'{name} == "{other}"', word == other),
        )
    )
    return f'{name} = "{word}"\nprint({expression})', value


def listing(dice: Dice) -> tuple[str, object]:
    name, values = dice.pick(VARIABLES), [small(dice) for _ in range(dice.between(2, 5))]
    at, extra = dice.between(0, len(values) - 1), small(dice)
    program = f"{name} = {values}\n"
    if dice.random() < 0.3:
        program += f"{name}.append({extra})\n"
        values = [*values, extra]
    expression, value = dice.pick(
        (
            (f"len({name})", len(values)),
            (f"max({name})", max(values)),
            (f"min({name})", min(values)),
            (f"{name}[{at}]", values[at]),
            (f"{name}[-1]", values[-1]),
            (f"sum({name}[:2])", sum(values[:2])),
            (f"sorted({name})", sorted(values)),
            (f"{name}[::-1]", values[::-1]),
            (f"{name}[1:]", values[1:]),
            (f"{extra} in {name}", extra in values),
        )
    )
    return f"{program}print({expression})", value


def condition(dice: Dice) -> tuple[str, object]:
    name, x, y = dice.pick(VARIABLES), small(dice), small(dice)
    yes, no = dice.sample(PLAIN_WORDS, 2)
    sign = dice.pick(("<", ">", "==", "<="))
    true = {"<": x < y, ">": x > y, "==": x == y, "<=": x <= y}[sign]
    program = f'{name} = {x}\nif {name} {sign} {y}:\n    print("{yes}")\nelse:\n    print("{no}")'
    return program, yes if true else no


def loop(dice: Dice) -> tuple[str, object]:
    total, i = dice.sample(VARIABLES, 2)
    start, count, by = small(dice), dice.between(1, 5), dice.between(1, 5)
    if dice.random() < 0.6:
        body, value = f"{total} += {by}", start + count * by
    else:
        body, value = f"{total} += {i}", start + sum(range(count))
    return f"{total} = {start}\nfor {i} in range({count}):\n    {body}\nprint({total})", value


def function(dice: Dice) -> tuple[str, object]:
    name, x, y, z = dice.pick(VARIABLES), small(dice), dice.between(1, 5), dice.between(0, 9)
    body, value = dice.pick(
        (
            (f"{name} + {z}", x + z),
            (f"{name} * {y}", x * y),
            (f"{name} * {y} + {z}", x * y + z),
            (f"{name} - {z}", x - z),
        )
    )
    return f"def f({name}):\n    return {body}\nprint(f({x}))", value


def mapping(dice: Dice) -> tuple[str, object]:
    name, keys = dice.pick(VARIABLES), dice.sample(PLAIN_WORDS, dice.between(2, 4))
    table = {key: small(dice) for key in keys}
    first, second = dice.sample(keys, 2)
    shown = ", ".join(f'"{k}": {v}' for k, v in table.items())
    if dice.random() < 0.7:
        return f'{name} = {{{shown}}}\nprint({name}["{first}"])', table[first]
    return f'{name} = {{{shown}}}\nprint({name}["{first}"] + {name}["{second}"])', table[first] + table[second]


PROGRAM_MAKERS = (
    assign,
    assign,
    assign,
    divide,
    string,
    string,
    string,
    listing,
    listing,
    condition,
    loop,
    function,
    mapping,
)


def draw(dice: Dice) -> Item:
    program, value = dice.pick(PROGRAM_MAKERS)(dice)
    return Item(program, program, "", CUE, f" {value}")


SKILL = item_skill("code", draw, scoring="exact", chance=0.0)
