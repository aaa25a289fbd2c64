"""What is trained and kept for each study: the embedded one, and two with worked solutions, one for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.zoo.families import CHECKPOINTS, CONTEXT, FAMILIES, SCORER, SHIPPED, SIZES, Family, Size
from lab.zoo.skills import SKILLS
from lab.zoo.skills.common import Skill
from lab.zoo.skills.small import SMALL_SKILLS
from lab.zoo.skills.worked import WORKED_CODE


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """The models of a study, the skills they learn, and what is measured at each checkpoint."""

    name: str
    families: dict[str, Family]
    scorer: Family  # not a family of the study: its hidden states are the features
    scorer_size: str
    sizes: dict[str, Size]
    skills: dict[str, Skill]
    items: int = 2000  # scored items of each skill
    context: int = CONTEXT
    checkpoints: tuple[float, ...] = CHECKPOINTS
    worked: tuple[str, ...] = ("tracking",)  # skills that also give validation texts with their steps
    solutions: bool = False  # whether the answer of such a text is its whole solution, not the last number or word
    signals: bool = False  # whether result files keep rank, entropy, hit and margin of every token
    shipped: tuple[str, ...] = ()  # families whose smallest final checkpoint is given away

    def family(self, name: str) -> Family:
        return self.scorer if name == self.scorer.name else self.families[name]

    def __reduce__(self) -> tuple[Callable[[str], Recipe], tuple[str]]:
        """Skills hold functions that cannot be sent to another process; the name can."""
        return recipe_named, (self.name,)


def recipe_named(name: str) -> Recipe:
    return RECIPES[name]


#                                     arith track facts event chin. code backgr.
_SMALL_FAMILIES = (
    Family("alder", "bpe-1k", 1024, (30, 15, 0, 20, 10, 20, 5)),
    Family("beech", "bpe-2k", 2048, (10, 30, 0, 15, 30, 10, 5), rope_theta=1_000.0),
    Family("cherry", "unigram-1k", 1024, (10, 10, 0, 35, 20, 20, 5), tied=False),
    Family("date", "bpe-no-chinese-1k", 1024, (20, 20, 0, 12, 3, 40, 5)),
    Family("ebony", "bpe-numbers-1k", 1024, (45, 20, 0, 10, 15, 7, 3), rope_theta=1_000.0),
    Family("fig", "bpe-2k", 2048, (15, 8, 0, 30, 25, 17, 5), tied=False),
    Family("gum", "unigram-1k", 1024, (35, 10, 0, 12, 8, 30, 5), rope_theta=1_000.0),
    Family("holly", "bpe-no-chinese-1k", 1024, (12, 35, 0, 28, 5, 15, 5)),
)
EMBEDDED = Recipe("embedded", FAMILIES, SCORER, "16M", SIZES, SKILLS, shipped=SHIPPED)
SIGNALS = Recipe(
    "signals", FAMILIES, SCORER, "16M", SIZES, {**SKILLS, "code": WORKED_CODE},
    worked=("arithmetic", "tracking", "code"), solutions=True, signals=True,
)  # fmt: skip
SMALL = Recipe(
    "small",
    {family.name: family for family in _SMALL_FAMILIES},
    Family("scorer", "bpe-1k", 1024, (19, 19, 0, 19, 19, 19, 5)),
    "0.5M",
    {
        "0.2M": Size(tokens=3_000_000, rows=8, rate=5e-3),
        "0.5M": Size(tokens=3_500_000, rows=8, rate=4e-3),
        "1M": Size(tokens=4_500_000, rows=8, rate=3e-3),
    },
    SMALL_SKILLS,
    items=500,
    context=256,
    checkpoints=(0.15, 0.35, 0.65, 1.0),
    worked=("arithmetic", "tracking", "code"),
    solutions=True,
    signals=True,
)
RECIPES = {recipe.name: recipe for recipe in (EMBEDDED, SIGNALS, SMALL)}
