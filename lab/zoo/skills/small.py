"""Easier versions of the skills, for models of less than a million parameters and a few million training tokens.

Without facts: what such models can store of 640 towns is too little to be scored.
"""

from lab.zoo.skills import arithmetic, chinese, events, tracking
from lab.zoo.skills.common import Dice, Item, Skill, item_skill
from lab.zoo.skills.worked import WORKED_CODE

TOP = 10
ITEM_MAKERS = (tracking.turns, tracking.turns, tracking.moves, tracking.ordering)


def arithmetic_item(dice: Dice) -> Item:
    return arithmetic.problem(dice, TOP, dice.between(1, 2))


def tracking_item(dice: Dice) -> Item:
    return dice.pick(ITEM_MAKERS)(dice)


SMALL_SKILLS: dict[str, Skill] = {
    "arithmetic": item_skill("arithmetic", arithmetic_item, scoring="steps-exact", chance=0.0),
    "tracking": item_skill("tracking", tracking_item, scoring="steps-choice", chance=1 / 3, without_steps=0.15),
    "events": events.SKILL,
    "chinese": chinese.SKILL,
    "code": WORKED_CODE,
}
