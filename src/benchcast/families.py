"""Find groups of related models, which are hidden together in cross-validation and counted once in an interval.

Models of one family are related. Two families are related if one has a copy of a model of the other, if one was
trained from the other (`base` in models.csv), or if their loss profiles are similar. A model's profile is the deviation
of its log loss on each text from the curve that all models follow as their mean loss falls. A model without a family
joins the models with similar profiles.
Axes: M models, S texts, G groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.records import Bools, Floats, Ints, ModelInfo, family_names
from benchcast.splits import family_balanced

FEWEST_MODELS = 8  # with fewer, the common curve explains most of each profile
FEWEST_TEXTS = 16
CURVE = 2  # degree of the curve that log losses follow
NEAR_COPY = 0.2  # distance of two models' log losses, in units of the size of a profile
IDENTICAL = 1e-6  # the same, without profiles
ALIKE = 0.35  # mean correlation of profiles at which a model without a family joins others
CLOSE = 0.45  # mean distance (1 − cosine) between the profiles of similar families
ISOLATED = 0.38  # and that distance over the mean distance to the nearest other family
JOINED = " + "  # between families in the name of a group
COPIES, BASE, SIMILAR = "copies", "base in models.csv", "similar loss profiles"
Pair = tuple[int, int]  # of models
Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Relation:
    """Families (or models without one) that form one group, and how that was found."""

    names: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relatives:
    """The group of each model, and the groups of more than one family."""

    groups: Labels  # M; a family without relatives keeps its name
    relations: tuple[Relation, ...]


def find_relatives(models: Sequence[ModelInfo], losses: Floats) -> Relatives:
    """Group related models.

    Parameters
    ----------
    models : rows of models.csv
    losses : loss of each model on each text, in any unit (M × S); texts without a positive loss of every model are
        not used
    """
    families = family_names(models)
    label = np.unique(families, return_inverse=True)[1]
    reasons: list[tuple[str, Pair]] = []

    def join(reason: str, pairs: Iterator[Pair]) -> None:
        for a, b in pairs:
            if label[a] != label[b]:
                label[label == label[b]] = label[a]
                reasons.append((reason, (a, b)))

    logs = np.log(losses[:, (losses > 0).all(axis=0)])
    join(BASE, _pairs_with_base(models, families))
    if logs.shape[1]:
        profile = _profiles(logs, label)
        join(COPIES, _copies(logs, IDENTICAL if profile is None else NEAR_COPY * _size(profile)))
        if profile is not None:
            join(SIMILAR, _inferred_families(profile, label, np.array([not m.family for m in models])))
            join(SIMILAR, _similar_groups(profile, label))
    names = [tuple(dict.fromkeys(map(str, families[label == k]))) for k in range(label.max() + 1)]
    why = {k: tuple(dict.fromkeys(r for r, (a, _) in reasons if label[a] == k)) for k in np.unique(label)}
    relations = tuple(Relation(names[k], why[k]) for k in why if len(names[k]) > 1)
    return Relatives(np.array([JOINED.join(names[k]) for k in label]), relations)


def copies_of(models: Sequence[ModelInfo], losses: Floats) -> list[Pair]:
    """Pairs of models that are copies of each other: of different runs, with hardly different losses on each text.

    Parameters
    ----------
    models, losses : as in `find_relatives`

    Returns
    -------
    indices of each pair; checkpoints of one run, which have one name before the @, are no copies
    """
    logs = np.log(losses[:, (losses > 0).all(axis=0)])
    if not logs.shape[1]:
        return []
    profile = _profiles(logs, np.unique(family_names(models), return_inverse=True)[1])
    runs = [m.model.partition("@")[0] for m in models]
    reach = IDENTICAL if profile is None else NEAR_COPY * _size(profile)
    return [(a, b) for a, b in _copies(logs, reach) if runs[a] != runs[b]]


def families_of(group: str) -> list[str]:
    """The families in the name of a group."""
    return group.split(JOINED)


def _pairs_with_base(models: Sequence[ModelInfo], families: Labels) -> Iterator[Pair]:
    """Each model with its base: a model or family of the study, else the first model of the same base."""
    first: dict[str, int] = {}
    for names in ([m.base for m in models], map(str, families), [m.model for m in models]):
        first |= {name: i for i, name in reversed(list(enumerate(names)))}
    yield from ((first[m.base], i) for i, m in enumerate(models) if m.base)


def _profiles(logs: Floats, label: Ints) -> Floats | None:
    """Deviation of each model's log losses from the common curve (M × S); None where there is too little data.

    The curve is a polynomial in the mean log loss; every family weighs the same. Texts weigh the same, too.
    """
    if len(logs) < FEWEST_MODELS or logs.shape[1] < FEWEST_TEXTS:
        return None
    mean = logs.mean(axis=1)
    powers = np.vander((mean - mean.mean()) / max(mean.std(), IDENTICAL), CURVE + 1)
    root = np.sqrt(family_balanced(label.astype(str)))[:, None]
    profile = logs - powers @ np.linalg.lstsq(root * powers, root * logs, rcond=None)[0]
    return profile if _size(profile) > IDENTICAL else None


def _size(profile: Floats) -> float:
    return float(np.sqrt(np.mean(profile**2)))


def _directions(profile: Floats) -> Floats:
    """Profiles as unit vectors around their mean; their products are correlations."""
    scaled = profile / np.maximum(profile.std(axis=0), IDENTICAL)
    return _unit(scaled - scaled.mean(axis=1, keepdims=True))


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), IDENTICAL))


def _copies(logs: Floats, reach: float) -> Iterator[Pair]:
    """Pairs of models whose log losses differ by less than `reach`, root mean square."""
    centred = logs - logs.mean(axis=0)
    square = np.sum(centred**2, axis=1)
    for i, row in enumerate(centred):
        distance = square[i] + square - 2 * centred @ row
        close = np.flatnonzero(distance[:i] < 2 * reach**2 * logs.shape[1] + IDENTICAL * square[i])
        yield from ((int(j), i) for j in close if np.mean((logs[i] - logs[j]) ** 2) < reach**2)


def _inferred_families(profile: Floats, label: Ints, alone: Bools) -> Iterator[Pair]:
    """Models without a family, by average linkage of their profiles; then each cluster with the nearest family."""
    rows = np.flatnonzero(alone)
    if not len(rows):
        return
    directions = _directions(profile)
    cluster = np.zeros(len(rows), int)
    if len(rows) > 1:
        apart = np.clip(1 - directions[rows] @ directions[rows].T, 0, 2)
        np.fill_diagonal(apart, 0)
        cluster = _clusters(apart)
    named = [np.flatnonzero(~alone & (label == k)) for k in np.unique(label[~alone])]
    for k in np.unique(cluster):
        clustered = rows[cluster == k]
        yield from ((int(clustered[0]), int(i)) for i in clustered[1:])
        alike = [float((directions[clustered] @ directions[family].T).mean()) for family in named]
        if alike and max(alike) > ALIKE:
            yield int(named[int(np.argmax(alike))][0]), int(clustered[0])


def _clusters(distance: Floats) -> Ints:
    """Number of each row's cluster, of rows whose mean distance is below 1 − `ALIKE`."""
    from scipy.cluster.hierarchy import fcluster  # slow to import, and most commands group nothing

    return np.asarray(fcluster(_linkage(distance), 1 - ALIKE, "distance"))


def _linkage(distance: Floats) -> Floats:
    """The tree of average linkage."""
    from scipy.cluster.hierarchy import linkage  # as above
    from scipy.spatial.distance import squareform

    return np.asarray(linkage(squareform(distance, checks=False), "average"))


def _similar_groups(profile: Floats, label: Ints) -> Iterator[Pair]:
    """Clusters of groups that are close to each other and far from all others (average linkage)."""
    names, first = np.unique(label, return_index=True)
    if len(names) < 4:  # two or three groups lie in different directions from their centre, similar or not
        return
    directions = _directions(profile)
    middle = _unit(np.stack([directions[label == k].mean(axis=0) for k in names]))
    distance = np.clip(1 - middle @ middle.T, 0, 2)
    np.fill_diagonal(distance, 0)
    members = {i: np.array([i]) for i in range(len(names))}
    for step, (a, b, _, count) in enumerate(_linkage(distance)):
        joined = members[len(names) + step] = np.append(members[int(a)], members[int(b)])
        others = np.setdiff1d(np.arange(len(names)), joined)
        within = distance[np.ix_(joined, joined)].sum() / (count * (count - 1))
        if len(others) and within < min(CLOSE, ISOLATED * distance[np.ix_(joined, others)].min(axis=1).mean()):
            yield from ((int(first[joined[0]]), int(first[i])) for i in joined[1:])
