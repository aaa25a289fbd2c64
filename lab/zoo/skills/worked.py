"""Programs with a worked solution: the values that its variables take, in order."""

import builtins
import sys
from types import FrameType

from lab.zoo.skills import code
from lab.zoo.skills.common import Dice, Item, item_skill

STEPS = "\n# steps:"
NAME = "<worked>"
SILENT = {**vars(builtins), "print": lambda *values: None}


def draw(dice: Dice) -> Item:
    item = code.draw(dice)
    return item._replace(steps=f"{STEPS} {'; '.join(trace(item.prompt))}")


def trace(program: str) -> list[str]:
    """`name = value` for each new value of a variable while the program runs."""
    held: dict[str, str] = {}
    assignments: list[str] = []

    def look(frame: FrameType, event: str, argument: object) -> object:
        if frame.f_code.co_filename != NAME:
            return None
        for name, value in frame.f_locals.items():
            shown = repr(value)
            if not (name.startswith("__") or callable(value)) and held.get(name) != shown:
                held[name] = shown
                assignments.append(f"{name} = {shown}")
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        exec(compile(program, NAME, "exec"), {"__builtins__": SILENT})
    finally:
        sys.settrace(before)
    return assignments


WORKED_CODE = item_skill("code", draw, scoring="exact", chance=0.0, without_steps=0.6)
