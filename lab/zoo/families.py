"""The table of the zoo: sizes, families, mixtures and training budgets. Change the experiment here."""

from dataclasses import dataclass

CONTEXT = 512
CHECKPOINTS = (0.06, 0.15, 0.3, 0.6, 1.0)  # shares of a run's tokens


@dataclass(frozen=True, slots=True)
class Size:
    """A rung of the ladder."""

    tokens: int  # training tokens of a run
    rows: int  # sequences of CONTEXT tokens in a batch
    rate: float  # peak learning rate


SIZES = {
    "0.5M": Size(tokens=24_000_000, rows=32, rate=4e-3),
    "1.6M": Size(tokens=32_000_000, rows=32, rate=3e-3),
    "5M": Size(tokens=40_000_000, rows=32, rate=2e-3),
    "16M": Size(tokens=48_000_000, rows=64, rate=1.5e-3),
    "50M": Size(tokens=36_000_000, rows=64, rate=1e-3),
}

# (layers, width) of each size by the vocabulary it must leave room for. Widths are few on purpose:
# layers of one shape are compiled once.
SHAPES = {
    512: {"0.5M": (4, 96), "1.6M": (5, 160), "5M": (6, 256), "16M": (9, 384), "50M": (10, 640)},
    1024: {
        "0.2M": (3, 64),
        "1M": (4, 128),
        "0.5M": (4, 96),
        "1.6M": (5, 160),
        "5M": (6, 256),
        "16M": (9, 384),
        "50M": (10, 640),
    },
    2048: {
        "0.2M": (2, 64),
        "1M": (4, 128),
        "0.5M": (3, 96),
        "1.6M": (4, 160),
        "5M": (6, 256),
        "16M": (8, 384),
        "50M": (10, 640),
    },
    4096: {"0.5M": (4, 64), "1.6M": (5, 128), "5M": (5, 256), "16M": (8, 384), "50M": (9, 640)},
    8192: {"0.5M": (3, 64), "1.6M": (4, 128), "5M": (4, 256), "16M": (7, 384), "50M": (9, 640)},
}

SOURCES = ("arithmetic", "tracking", "facts", "events", "chinese", "code", "background")


@dataclass(frozen=True, slots=True)
class Family:
    """Models that share tokenizer, data and design, and differ in size only."""

    name: str
    tokenizer: str  # a key of vocab.RECIPES
    vocabulary: int  # rows of the tables: the tokenizer's size or a little more
    percents: tuple[int, ...]  # share of the training bytes from each of SOURCES
    rope_theta: float = 10_000.0
    tied: bool = True  # whether the output layer is the transposed input table

    @property
    def mixture(self) -> dict[str, float]:
        return {name: percent / 100 for name, percent in zip(SOURCES, self.percents, strict=True)}


#                                        arith track facts event chin. code backgr.
_ALL = (
    Family("ash", "bytes", 320, (30, 15, 15, 13, 7, 15, 5), tied=False),
    Family("birch", "bpe-1k", 1024, (10, 25, 12, 15, 25, 10, 3)),
    Family("cedar", "bpe-2k", 2048, (8, 10, 30, 25, 12, 10, 5), rope_theta=1_000.0),
    Family("elm", "bpe-4k", 4096, (18, 6, 12, 12, 6, 38, 8)),
    Family("fir", "bpe-8k", 8192, (40, 15, 22, 8, 3, 7, 5)),
    Family("hazel", "unigram-4k", 4096, (6, 12, 16, 16, 40, 6, 4), rope_theta=1_000.0),
    Family("larch", "bpe-no-chinese-4k", 4096, (12, 32, 6, 32, 5, 10, 3), tied=False),
    Family("oak-a", "bpe-3k", 3072, (35, 10, 12, 10, 5, 24, 4)),
    Family("oak-b", "bpe-3k", 3072, (6, 14, 28, 20, 22, 6, 4)),
)
FAMILIES = {family.name: family for family in _ALL}

# Not a family: its hidden states are the features of the salience.
SCORER = Family("scorer", "bpe-4k", 4096, (16, 16, 16, 16, 16, 16, 4))
SHIPPED = ("ash", "cedar", "oak-a")  # families whose smallest final checkpoint is given away with the zoo


def shape(family: Family, size: str) -> tuple[int, int]:
    """Layers and width of a member of the family."""
    return SHAPES[min(v for v in SHAPES if v >= family.vocabulary)][size]
