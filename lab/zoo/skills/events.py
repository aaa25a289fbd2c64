"""What happens next in everyday event sequences; four endings, none of them a line of the story so far.

Endings are wrong because they belong to another script (easy), come later in the same script (harder), or
name the wrong thing or person (hardest).
"""

from lab.zoo.skills.common import Dice, Item, item_skill, with_distractors
from lab.zoo.skills.scripts import SCRIPTS, Script
from lab.zoo.skills.words import NAMES, SHE


def fill_in(step: str, name: str, slots: tuple[str, str]) -> str:
    she = name in SHE
    line = step.replace("{n}", name).replace("{s}", "She" if she else "He").replace("{h}", "her" if she else "his")
    return line.replace("{x}", slots[0]).replace("{y}", slots[1])


def from_another_script(dice: Dice, excluded: Script, name: str, right: str) -> str:
    """A step of another script, of about the right one's length: length must not give the answer away."""
    lines = []
    for other in dice.sample([script for script in SCRIPTS if script is not excluded], 4):
        lines.append(fill_in(dice.pick(other.steps[2:]), name, (dice.pick(other.x), dice.pick(other.y))))
    return min(lines, key=lambda line: abs(len(line) - len(right)))


def from_later(dice: Dice, script: Script, name: str, slots: tuple[str, str], at: int) -> str | None:
    """A step of the same script that comes too early here."""
    later = script.steps[at + 1 :]
    return fill_in(dice.pick(later), name, slots) if later else None


def with_wrong_slot(dice: Dice, script: Script, name: str, slots: tuple[str, str], at: int) -> str | None:
    """The right step with another thing or person in it, if it names any."""
    wrong = (dice.pick([v for v in script.x if v != slots[0]]), dice.pick([v for v in script.y if v != slots[1]]))
    line = fill_in(script.steps[at], name, wrong)
    return line if line != fill_in(script.steps[at], name, slots) else None


def distractors(dice: Dice, script: Script, name: str, slots: tuple[str, str], at: int) -> list[str]:
    """Three endings that differ from the right one and from each other."""
    right = fill_in(script.steps[at], name, slots)
    wrong: list[str] = []
    while len(wrong) < 3:
        roll = dice.random()
        if roll < 0.4:
            line = from_another_script(dice, script, name, right)
        elif roll < 0.75:
            line = with_wrong_slot(dice, script, name, slots, at)
        else:
            line = from_later(dice, script, name, slots, at)
        if line is not None and line != right and line not in wrong:
            wrong.append(line)
    return wrong


def draw(dice: Dice) -> Item:
    script = dice.pick(SCRIPTS)
    name, slots = dice.pick(NAMES), (dice.pick(script.x), dice.pick(script.y))
    at = dice.between(2, len(script.steps) - 1)
    # The first line names the slots; of the others at most three are told, the latest last.
    shown_steps = [script.steps[0], *script.steps[max(1, at - 3) : at]]
    lines = [fill_in(step, name, slots) for step in shown_steps]
    answer = f" {fill_in(script.steps[at], name, slots)}"
    wrong = [f" {line}" for line in distractors(dice, script, name, slots, at)]
    # All stories that open with the same line are in one split, whatever piece of them is told.
    return Item(lines[0], " ".join(lines), "", "", answer, with_distractors(dice, answer, wrong))


SKILL = item_skill("events", draw, scoring="choice", chance=0.25)
