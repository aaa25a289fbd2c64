"""Every number of `stack` and `salience` that changes a forecast by more than rounding, with its reason.

Elsewhere stand only the limits of the solver of non-negative candidates (`nonnegative`, beside its loop) and the shape
of the law and its curve (`law`), which other methods share. What else looks like a number in the code guards a division
by zero, labels something, or belongs to a formula.

Gain: geometric mean over tasks of the squared error of the method `all-token` divided by that of the method; larger is
better. lab/LOG.md has the experiments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grouping = Literal["all", "source", "answer", "cluster", "kind", "choice"]  # ways to group tokens, see `token_groups`
Anchor = Literal["all", "source", "answer", "choice"]  # groupings whose weights are not penalised


@dataclass(frozen=True, slots=True)
class PenalisedGroups:
    """Groups of similar tokens with penalised weights, the anchors to shrink towards, and the penalties to try."""

    grouping: Grouping
    anchors: tuple[Anchor | None, ...]  # None: no anchor
    penalties: tuple[float, ...]  # the weakest first; relative to the total variance of the groups' losses


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """The numbers of the method. They are an argument of every step and are not stored with a fit."""

    # 1. Groups of tokens
    sample: int = 8192  # tokens from which directions, and at most as many from which clusters, are estimated: for time
    directions: int = 24  # main directions of the hidden states, in which tokens are clustered; each with unit variance
    extra_directions: int = 40  # computed on top, so that few rounds of subspace iteration converge
    direction_rounds: int = 6  # of subspace iteration; the spectrum of hidden states decays fast
    smallest_spread: float = 1e-6  # relative to the largest; features and directions below it are rounding errors
    source_clusters: int = 224  # "cluster" groups in total; half or twice as many lower the gain on larger models by 5%
    most_per_cell: int = 16  # "cluster" groups in one cell of a source; a limit with few sources only
    kind_clusters: int = 128  # "kind" groups
    fewest_per_cluster: int = 20  # tokens; a model's mean loss on fewer is mostly noise
    cluster_rounds: int = 20  # of k-means
    most_text_groups: int = 400  # without features; with more texts, consecutive texts share a group, to save time
    seed: int = 0  # of the samples and first centres

    # 2. Hidden sets
    strongest: tuple[float, ...] = (0.4, 0.25, 0.15)  # fractions of the known models, hidden as stronger than the rest:
    # several distances of extrapolation; hiding 60%, too, forecasts worse
    fewest_weaker: int = 4  # known models that must be left to learn from; a fit needs as many

    # 3. Floor
    floors: tuple[float, ...] = (0.85, 0.7, 0.5, 0.25, 0.0)  # lower floors, as fractions of nominal chance
    weakest: float = 0.2  # share of the known models, those of the lowest scores, that must not be clearly above chance
    usual_items: float = 500.0  # of a score: clearly above chance is one standard error. Without this condition
    # errors of small studies of llm-line rise by 8%; where chance is the floor of a synthetic world, it changes nothing
    families_for_any_floor: int = 10  # known families with which lower floors are tried on every task and proposed by
    # signed candidates, too: gain on the 89 public LLMs 1.47 → 1.59. With fewer families signed candidates do harm (zoo
    # by size 9.96 → 9.70), and so do floors on every task (see above)
    least_floor_saving: float = 0.1  # of the squared error on left-out families; nominal chance stays where less is
    # saved. Twice as much, or a test of significance over families, lowers the gain on llm-line by 5%
    reach_below_zero: float = 2.0  # a centred mean has chance 0; its lowest floor is this times its lowest score

    # 4. Candidates
    penalised: tuple[PenalisedGroups, ...] = (  # few penalties far apart: the average fills in between
        PenalisedGroups("cluster", (None, "source", "answer"), (1e-7, 1e-5, 1e-3)),
        PenalisedGroups("kind", (None, "answer"), (1e-6, 1e-4)),
    )
    components: int = 8  # of partial least squares, as in the method `pls`
    strength_scale: float = 1.0  # standard deviations of mean loss over which a weight by strength falls by a factor e;
    # half of it is no better
    fewest_for_strength_weights: int = 20  # known models; with eleven, weights by strength lowered the gain from 2.45
    # to 2.26
    most_for_strength_weights: int = 1000  # known models; with more they are not learned, to save time

    # 5. Averages
    stronger_rows_weight: float = 0.5  # of stronger rows, where they are used; 0.25 and 0.75 are worse (gain 5.2 and
    # 5.1 instead of 5.5)
    starting_shares_power: float = -2.0  # shares start at squared error ** power; other powers are no better
    share_steps: int = 300  # 100 to 1,000 are alike; stopping early keeps the shares of similar candidates similar
    share_rate: float = 0.15  # largest change of the logarithm of a share in one step
    least_error: float = 1e-12  # squared; smaller errors are rounding errors
    fewest_sets_to_refit: int = 3  # hidden sets; without one of two sets, a single set would remain

    # 6. Calibration: fraction of the fitted line that is applied
    all_rows_line: float = 0.0  # what corrects hidden families is wrong for stronger models (gain 5.9 → 5.0)
    prior_models: int = 40  # the family-rows average has the fraction n / (n + this) with n known models; a full line
    # is worse (gain 4.7 → 4.3), most of all with few models
    salience_line: float = 1.0  # a full line raised its gain from 7.1 to 7.6 (by size; by family it made no difference)
    least_curve_saving: float = 0.1  # a curve is kept if it saves more than this / number of families of the squared
    # error; where a plain sigmoid is the truth, it saves more by chance in one task of twenty
    fewest_families_for_curve: int = 3  # one or two cannot show what a curve does to a third

    # 7. Blend
    family_rows_share: float = 0.5  # h, of the family-rows average, for a model of usual strength; 0.7 is alike
    ramp_quantile: float = 0.15  # of the known models' mean loss: the weak end of the ramp; 0.3 and 0.4 are no better
    families_for_half: float = 2.0  # known families with which the anchors have half of the blend; with twice as many
    # a fifth. 4 lowers the gain on the OLMo ladder from 2.7 to 2.4
    answers_power: float = -4.0  # the loss of the task's answers alone counts (its squared error on left-out families ÷
    # that of the averages) ** ((1 - e) * this), the averages count 1. The gain on llm-line rises from 2.1 to 2.4, and
    # falls by 1% on the embedded study and DCLM; -2: 2.4, and by 2 to 4%. The factor 1 - e, by which errors on few
    # families count less, takes the ninth decile on small studies of the embedded one from 2.4 to 2.1
    choices_power: float = -2.0  # the same for the choice loss alone; -4 gains less: 4.4 instead of 4.7 on the ladder

    # Notes of a fit
    smallest_noted_share: float = 0.01  # smaller ones are not noted
