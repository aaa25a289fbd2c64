"""Stepwise reasoning with the steps written out: swaps, orderings, turns and moves; three options each."""

from lab.zoo.skills.common import ANSWER, STEPS, Dice, Item, item_skill, with_distractors
from lab.zoo.skills.words import NAMES, PLACES, THINGS

SWAPPERS, SWAPPED = NAMES[:24], THINGS[:24]  # few enough that the swaps, not the words, are what is hard
DIRECTIONS = ("north", "east", "south", "west")
TURNS = {"right": 1, "around": 2, "left": 3}
SWAP = ("{a} and {b} swap.", "{a} swaps with {b}.", "Then {a} and {b} trade.", "{a} trades with {b}.")
COMPARE = (
    ("taller", "shorter", "tallest", "shortest"),
    ("older", "younger", "oldest", "youngest"),
    ("faster", "slower", "fastest", "slowest"),
    ("heavier", "lighter", "heaviest", "lightest"),
    ("richer", "poorer", "richest", "poorest"),
)
MOVE = ("{n} moves the {t} to the {p}.", "{n} puts the {t} in the {p}.", "{n} takes the {t} to the {p}.")


def item(dice: Dice, prompt: str, steps: str, answer: str, others: list[str]) -> Item:
    """An item with two distractors drawn from `others`."""
    wrong = [f" {word}" for word in dice.sample(others, 2)]
    options = with_distractors(dice, f" {answer}", wrong)
    return Item(prompt, prompt, f"{STEPS} {steps}", ANSWER, f" {answer}", options)


def state_of(held: dict[str, str]) -> str:
    return ", ".join(f"{name} {thing}" for name, thing in held.items())


def swaps(dice: Dice) -> Item:
    """Every step writes out who holds what, in the order of the story."""
    count = dice.pick((3, 3, 3, 3, 4))
    people, things = dice.sample(SWAPPERS, count), dice.sample(SWAPPED, count)
    held = dict(zip(people, things, strict=True))
    has = [f"{n} has the {t}" for n, t in held.items()]
    sentences = [f"{', '.join(has[:-1])} and {has[-1]}."]
    steps = [state_of(held)]
    for _ in range(dice.pick((1, 1, 2, 2, 3))):
        a, b = dice.sample(people, 2)
        held[a], held[b] = held[b], held[a]
        sentences.append(dice.pick(SWAP).replace("{a}", a).replace("{b}", b))
        steps.append(state_of(held))
    asked = dice.pick(people)
    prompt = f"{' '.join(sentences)} What does {asked} have?"
    return item(dice, prompt, "; ".join(steps), held[asked], [t for t in things if t != held[asked]])


def ordering(dice: Dice) -> Item:
    people = dice.sample(NAMES, dice.pick((3, 3, 3, 4)))
    more, less, most, least = dice.pick(COMPARE)
    clues = []
    for above, below in zip(people, people[1:], strict=False):
        flip = dice.random() < 0.3
        clues.append(f"{below} is {less} than {above}." if flip else f"{above} is {more} than {below}.")
    if dice.random() < 0.4:
        dice.shuffle(clues)
    top = dice.random() < 0.5
    answer = people[0] if top else people[-1]
    prompt = f"{' '.join(clues)} Who is the {most if top else least}?"
    return item(dice, prompt, " > ".join(people), answer, [n for n in people if n != answer])


def turns(dice: Dice) -> Item:
    name, facing = dice.pick(NAMES), dice.between(0, 3)
    sentences, steps = [f"{name} faces {DIRECTIONS[facing]}."], [DIRECTIONS[facing]]
    for _ in range(dice.between(1, 4)):
        turn = dice.pick(("right", "left", "around"))
        facing = (facing + TURNS[turn]) % 4
        sentences.append(f"{name} turns {turn}." if dice.random() < 0.5 else f"Then {name} turns {turn}.")
        steps.append(f"{turn} {DIRECTIONS[facing]}")
    prompt = f"{' '.join(sentences)} Which way does {name} face?"
    answer = DIRECTIONS[facing]
    return item(dice, prompt, ", ".join(steps), answer, [d for d in DIRECTIONS if d != answer])


def moves(dice: Dice) -> Item:
    things, places = dice.sample(THINGS, dice.pick((1, 2))), dice.sample(PLACES, 4)
    people = dice.sample(NAMES, 2)
    where = {t: dice.pick(places) for t in things}
    sentences = [f"The {t} is in the {p}." for t, p in where.items()]
    asked = dice.pick(things)
    steps = [where[asked]]
    for _ in range(dice.between(1, 4)):
        thing = dice.pick(things)
        place = dice.pick([p for p in places if p != where[thing]])
        where[thing] = place
        sentence = dice.pick(MOVE).replace("{n}", dice.pick(people))
        sentences.append(sentence.replace("{t}", thing).replace("{p}", place))
        if thing == asked:
            steps.append(place)
    prompt = f"{' '.join(sentences)} Where is the {asked}?"
    return item(dice, prompt, ", ".join(steps), where[asked], [p for p in places if p != where[asked]])


ITEM_MAKERS = (swaps, swaps, swaps, swaps, ordering, turns, turns, turns, moves, moves)


def draw(dice: Dice) -> Item:
    return dice.pick(ITEM_MAKERS)(dice)


SKILL = item_skill("tracking", draw, scoring="steps-choice", chance=1 / 3, without_steps=0.15)
