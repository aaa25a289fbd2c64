"""Arithmetic word problems with worked steps: one to three operations on small to two-digit numbers."""

from lab.zoo.skills.common import ANSWER, STEPS, Dice, Item, item_skill
from lab.zoo.skills.words import CONTAINERS, COUNTED, NAMES

# {n} name, {m} another name, {o} objects, {c} container, {x} {y} numbers.
START = (
    "{n} has {x} {o}.",
    "There are {x} {o} on the table of {n}.",
    "{n} starts with {x} {o}.",
    "{n} collects {x} {o}.",
    "In the morning {n} has {x} {o}.",
    "{n} owns {x} {o}.",
)
GAIN = (
    "{n} buys {y} more.",
    "{m} gives {n} {y} more.",
    "Then {n} finds {y} {o}.",
    "{n} gets {y} {o} from {m}.",
    "{y} more {o} arrive.",
    "{n} wins {y} {o}.",
)
LOSS = (
    "{n} gives {y} to {m}.",
    "{n} loses {y} of them.",
    "{m} takes {y} {o}.",
    "{n} sells {y} {o}.",
    "{y} of the {o} are thrown away.",
    "Then {n} gives away {y}.",
)
TIMES = (
    "Then the number becomes {y} times as large.",
    "{n} trades them for {y} times as many.",
    "A fair makes it {y} times as many {o}.",
)
SHARE = (
    "{n} shares them equally among {y} friends and asks for one share.",
    "They are split into {y} equal heaps and {n} keeps one heap.",
    "{n} packs them into {y} equal bags and keeps one bag.",
)
PACKED = (
    "{n} has {x} {c}s with {y} {o} in each.",
    "There are {x} {c}s and {y} {o} in each {c}.",
    "{n} fills {x} {c}s with {y} {o} each.",
)
ASK = (
    "How many {o} are there now?",
    "How many {o} does {n} have now?",
    "How many {o} are left for {n}?",
    "What is the number of {o} now?",
)
LARGEST = 199


def draw_range(dice: Dice) -> int:
    """The largest operand of a problem: mostly small, with a tail of two-digit numbers."""
    roll = dice.random()
    return 10 if roll < 0.5 else 30 if roll < 0.8 else 99


def draw_steps(dice: Dice) -> int:
    roll = dice.random()
    return 1 if roll < 0.5 else 2 if roll < 0.8 else 3


def operation(dice: Dice, total: int, top: int) -> tuple[str, int, int]:
    """A sign, an operand and the result, which stays a whole number from 0 to LARGEST."""
    while True:
        roll = dice.random()
        if roll < 0.42:
            y = dice.between(1, top)
            sign, result = "+", total + y
        elif roll < 0.8:
            y = dice.between(1, top)
            sign, result = "-", total - y
        elif roll < 0.9:
            y = dice.between(2, 4)
            sign, result = "*", total * y
        else:
            y = dice.between(2, 5)
            if total % y:
                continue
            sign, result = "/", total // y
        if 0 <= result <= LARGEST:
            return sign, y, result


SENTENCES = {"+": GAIN, "-": LOSS, "*": TIMES, "/": SHARE}


def opening(dice: Dice, top: int) -> tuple[str, int, list[str]]:
    """The first sentence, the number it leaves and the steps it already takes."""
    if dice.random() < 0.15:
        x, y = dice.between(2, 9), dice.between(2, 10)
        return dice.pick(PACKED).replace("{x}", str(x)).replace("{y}", str(y)), x * y, [f"{x} * {y} = {x * y}"]
    x = dice.between(1, top)
    return dice.pick(START).replace("{x}", str(x)), x, []


def draw(dice: Dice) -> Item:
    return problem(dice, draw_range(dice), draw_steps(dice))


def problem(dice: Dice, top: int, count: int) -> Item:
    """A problem of `count` operations whose operands are at most `top`."""
    sentence, total, steps = opening(dice, top)
    sentences = [sentence]
    while len(steps) < count:
        sign, y, result = operation(dice, total, top)
        sentences.append(dice.pick(SENTENCES[sign]).replace("{y}", str(y)))
        steps.append(f"{total} {sign} {y} = {result}")
        total = result
    sentences.append(dice.pick(ASK))
    name, other = dice.sample(NAMES, 2)
    prompt = " ".join(sentences).replace("{n}", name).replace("{m}", other)
    prompt = prompt.replace("{o}", dice.pick(COUNTED)).replace("{c}", dice.pick(CONTAINERS)).replace("boxs", "boxes")
    prompt = prompt.replace("shelfs", "shelves")
    return Item(prompt, prompt, f"{STEPS} {', '.join(steps)}", ANSWER, f" {total}")


SKILL = item_skill("arithmetic", draw, scoring="steps-exact", chance=0.0)
