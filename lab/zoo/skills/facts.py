"""Facts about a generated world: towns with five attributes each, told in several phrasings.

Every fact occurs in training text, common towns far more often than rare ones. One question phrasing of
each fact is held out; scored items and validation texts ask only held-out pairs of fact and phrasing.
"""

from bisect import bisect
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from lab.zoo.skills.common import ANSWER, Dice, Item, Skill, with_distractors

TOWNS = 640
SCORED = 2400  # facts 0..SCORED-1 of a fixed shuffle are scored, the others give validation texts
SYLLABLES = [
    "bal",
    "bor",
    "cal",
    "dar",
    "del",
    "dun",
    "fal",
    "fen",
    "gar",
    "gol",
    "hal",
    "hol",
    "jar",
    "kel",
    "kor",
    "lan",
    "lor",
    "mar",
    "mel",
    "nor",
    "pel",
    "por",
    "ral",
    "sal",
    "sel",
    "tal",
    "tor",
    "val",
    "vel",
    "wen",
]
ENDINGS = ["a", "ford", "ham", "ia", "mere", "mouth", "ona", "stead", "ton", "ville", "wick", "worth"]
SURNAMES = ["an", "ard", "eck", "en", "er", "ett", "ins", "is", "ley", "man", "os", "ov", "son", "ster"]

VALUES = {
    "craft": [
        "pottery",
        "weaving",
        "carving",
        "brewing",
        "baking",
        "printing",
        "tanning",
        "mining",
        "fishing",
        "sailing",
        "glassware",
        "clockmaking",
        "dyeing",
        "farming",
        "smithing",
        "masonry",
        "joinery",
        "basketry",
        "knitting",
        "lacework",
        "beekeeping",
        "milling",
        "quarrying",
        "shipbuilding",
        "papermaking",
        "candlemaking",
        "soapmaking",
        "ropemaking",
        "cheesemaking",
        "gardening",
    ],
    "animal": [
        "badger",
        "bear",
        "beaver",
        "boar",
        "crane",
        "crow",
        "deer",
        "dolphin",
        "dove",
        "eagle",
        "falcon",
        "fox",
        "frog",
        "goat",
        "goose",
        "hare",
        "hawk",
        "hedgehog",
        "heron",
        "horse",
        "lion",
        "lynx",
        "otter",
        "owl",
        "ox",
        "rabbit",
        "raven",
        "salmon",
        "seal",
        "stag",
        "stork",
        "swan",
        "tiger",
        "turtle",
        "wolf",
    ],
    "dish": [
        "bean soup",
        "fish stew",
        "apple pie",
        "rye bread",
        "plum cake",
        "lamb roast",
        "onion tart",
        "cheese dumplings",
        "pea soup",
        "rice pudding",
        "honey cake",
        "smoked eel",
        "fried trout",
        "nut bread",
        "cabbage rolls",
        "beet salad",
        "barley broth",
        "potato cakes",
        "pickled herring",
        "cherry jam",
        "lentil curry",
        "mushroom pie",
        "egg noodles",
        "pear crumble",
        "pumpkin soup",
        "walnut cookies",
        "garlic sausage",
        "corn bread",
    ],
    "river": [
        a + b
        for a in ("Al", "Br", "Cor", "Dro", "El", "Gr", "Is", "Lu", "Mo", "Os")
        for b in ("va", "une", "ika", "ent")
    ],
}
PHRASINGS = {
    "craft": (
        (
            "{t} is known for its {v}.",
            "The main craft of {t} is {v}.",
            "People in {t} live by {v}.",
            "{v} made {t} rich.",
        ),
        (
            "What is {t} known for?",
            "Which craft is practised in {t}?",
            "How do the people of {t} earn a living?",
            "What made {t} rich?",
        ),
    ),
    "animal": (
        (
            "The flag of {t} shows a {v}.",
            "A {v} is the emblem of {t}.",
            "{t} has a {v} on its flag.",
            "On the gate of {t} stands a {v}.",
        ),
        (
            "Which animal is on the flag of {t}?",
            "What is the emblem of {t}?",
            "What stands on the gate of {t}?",
            "Which animal stands for {t}?",
        ),
    ),
    "dish": (
        (
            "The favourite dish of {t} is {v}.",
            "In {t} people like {v} best.",
            "Visitors to {t} try the {v}.",
            "Cooks from {t} make good {v}.",
        ),
        (
            "What do people in {t} like to eat?",
            "What is the favourite dish of {t}?",
            "What should visitors to {t} try?",
            "What do cooks from {t} make?",
        ),
    ),
    "river": (
        (
            "{t} lies on the river {v}.",
            "The river {v} runs through {t}.",
            "{t} was built on the banks of the {v}.",
            "Boats reach {t} by the {v}.",
        ),
        (
            "On which river does {t} lie?",
            "Which river runs through {t}?",
            "How do boats reach {t}?",
            "On the banks of which river was {t} built?",
        ),
    ),
    "founder": (
        (
            "{t} was founded by {v}.",
            "{v} founded {t}.",
            "The founder of {t} was {v}.",
            "A statue of {v} stands in {t}.",
        ),
        ("Who founded {t}?", "Who was the founder of {t}?", "By whom was {t} founded?", "Whose statue stands in {t}?"),
    ),
}
ATTRIBUTES = tuple(PHRASINGS)


class World(NamedTuple):
    towns: list[str]
    values: dict[str, list[str]]  # attribute -> the value of each town
    pools: dict[str, list[str]]  # attribute -> all its values
    order: list[int]  # facts in the fixed shuffle that splits them
    weights: list[float]  # cumulative share of each town in training text


@cache
def world() -> World:
    """The one world all texts speak about."""
    dice = Dice("world")
    towns = sorted(
        {(dice.pick(SYLLABLES) + dice.pick(SYLLABLES) + dice.pick(ENDINGS)).title() for _ in range(4 * TOWNS)}
    )
    dice.shuffle(towns)
    founders = sorted({(dice.pick(SYLLABLES) + dice.pick(SURNAMES)).title() for _ in range(60)})
    pools = {**{name: list(pool) for name, pool in VALUES.items()}, "founder": founders}
    values = {name: [dice.pick(pools[name]) for _ in range(TOWNS)] for name in ATTRIBUTES}
    order = list(range(TOWNS * len(ATTRIBUTES)))
    dice.shuffle(order)
    weights = list(accumulate((rank + 20) ** -0.7 for rank in range(TOWNS)))
    return World(towns[:TOWNS], values, pools, order, weights)


def held_out_phrasing(fact: int) -> int:
    """The question phrasing never used for this fact in training."""
    return (fact * 7 + fact // len(ATTRIBUTES)) % 4


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def ask(fact: int, phrasing: int) -> tuple[str, str, str]:
    """Prompt, answer and attribute of a question about a fact."""
    town, attribute = fact // len(ATTRIBUTES), ATTRIBUTES[fact % len(ATTRIBUTES)]
    question = PHRASINGS[attribute][1][phrasing].replace("{t}", world().towns[town])
    return f"Question: {question}", f" {world().values[attribute][town]}", attribute


def question(dice: Dice, fact: int, phrasing: int) -> Item:
    prompt, answer, attribute = ask(fact, phrasing)
    pool = [value for value in world().pools[attribute] if f" {value}" != answer]
    wrong = [f" {value}" for value in dice.sample(pool, 3)]
    return Item(f"{fact} {phrasing}", prompt, "", ANSWER, answer, with_distractors(dice, answer, wrong))


def draw_town(dice: Dice) -> int:
    weights = world().weights
    return bisect(weights, dice.random() * weights[-1])


def write(dice: Dice) -> str:
    """A training text: two to four statements about a town, or one question that is not held out."""
    town = draw_town(dice)
    if dice.random() < 0.35:
        fact = town * len(ATTRIBUTES) + dice.between(0, len(ATTRIBUTES) - 1)
        phrasing = (held_out_phrasing(fact) + dice.between(1, 3)) % 4
        prompt, answer, _ = ask(fact, phrasing)
        return prompt + ANSWER + answer
    sentences = []
    for attribute in dice.sample(ATTRIBUTES, dice.between(2, 4)):
        value = world().values[attribute][town]
        sentence = dice.pick(PHRASINGS[attribute][0]).replace("{t}", world().towns[town]).replace("{v}", value)
        sentences.append(capital(sentence))
    return " ".join(sentences)


def items(split: str, count: int) -> list[Item]:
    """Held-out pairs of fact and phrasing, rare and common towns alike."""
    dice = Dice(f"facts {split}")
    facts = world().order[:SCORED] if split == "score" else world().order[SCORED:]
    return [question(dice, fact, held_out_phrasing(fact)) for fact in facts[:count]]


SKILL = Skill("facts", "choice", 0.25, write, items)
