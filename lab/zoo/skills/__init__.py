"""The six skills of the zoo, one module each."""

from lab.zoo.skills import arithmetic, chinese, code, events, facts, tracking
from lab.zoo.skills.common import Skill

SKILLS: dict[str, Skill] = {
    module.SKILL.name: module.SKILL for module in (arithmetic, tracking, facts, events, chinese, code)
}
