"""Every number of `stack` and `salience` that changes a forecast, with its reason; lab/LOG.md has the experiments.

The limits of the solver of the non-negative candidates stand beside its loop, in `nonnegative`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GroupKind = Literal["all", "source", "answer", "cluster", "kind"]  # see `token_groups`
Anchor = Literal["all", "source", "answer"]  # groups whose weights are not penalised


@dataclass(frozen=True, slots=True)
class Mix:
    """Groups of similar tokens with penalised weights, the anchors to shrink towards, and the penalties to try."""

    groups: GroupKind
    anchors: tuple[Anchor | None, ...]  # None: no anchor
    penalties: tuple[float, ...]  # the weakest first; relative to the total variance of the groups' losses


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """The numbers of the method. They are an argument of every step and are not stored with a fit."""

    # 1. Groups of tokens
    directions: int = 24  # main directions of the hidden states, in which tokens are clustered; each with unit variance
    extra_directions: int = 40  # computed on top, so that few rounds of subspace iteration converge
    direction_rounds: int = 6  # of subspace iteration; the spectrum of hidden states decays fast
    smallest_spread: float = 1e-6  # relative to the largest; features and directions below it are rounding errors
    source_clusters: int = 224  # within sources, in total; half or twice as many lower the gain on larger models by 5%
    most_per_cell: int = 16  # clusters among the answers, or the other tokens, of one source; with few sources only
    kind_clusters: int = 128  # over all texts, so that a source with few texts borrows strength from the others
    fewest_per_cluster: int = 20  # tokens; a model's mean loss on fewer is mostly noise
    cluster_rounds: int = 20  # of k-means
    most_text_groups: int = 400  # without features; with more texts, consecutive texts share a group, to save time
    seed: int = 0  # of the samples and first centres

    # 2. Hidden models
    strongest: tuple[float, ...] = (0.4, 0.25, 0.15)  # shares of the known models, hidden as stronger than the rest:
    # several distances of extrapolation; hiding 60%, too, forecasts worse
    fewest_weaker: int = 4  # known models that must be left to learn from; a fit needs as many

    # 3. Candidates
    mixes: tuple[Mix, ...] = (  # few penalties far apart: the average fills in between
        Mix("cluster", (None, "source", "answer"), (1e-7, 1e-5, 1e-3)),
        Mix("kind", (None, "answer"), (1e-6, 1e-4)),
    )
    components: int = 8  # of partial least squares, as in the method `pls`
    fewest_for_strength_weights: int = 20  # known models; with fewer, weights by strength cost gain (2.45 → 2.26)
    most_for_strength_weights: int = 1000  # known models; above this they are left out to save time

    # 4. Averages
    first_shares_power: float = -2.0  # shares start at squared error ** power; other powers are no better
    share_steps: int = 300  # 100 to 1,000 are alike; stopping early keeps the shares of similar candidates similar
    share_rate: float = 0.15  # largest change of the logarithm of a share in one step
    least_error: float = 1e-12  # squared; smaller errors are rounding errors
    fewest_sets_to_refit: int = 3  # hidden sets; without one of two sets, a single set would remain

    # 5. Calibration
    prior_models: int = 40  # at which half of the fitted line is applied; a full line is worse with few models
    least_curve_gain: float = 0.1  # a curve is kept if it saves more than this / number of families of the squared
    # error; where a plain sigmoid is the truth, it saves more by chance in one task of twenty
    fewest_families_for_curve: int = 3  # one or two cannot show what a curve does to a third

    # 6. Blend
    families_share: float = 0.5  # of the average for left-out families, for a model inside the range
    ramp: float = 0.15  # quantile of the known models' mean loss at which the blend starts to move to the average for
    # both kinds of hidden models; 0.3 and 0.4 are no better

    # Notes of a fit
    smallest_noted_share: float = 0.01  # smaller ones are left out of the notes
