"""Choice losses of logged items, and the logged accuracies computed again from the log-likelihoods of the options.

With log-likelihoods ℓ of the options and the right one r, lm-evaluation-harness and lighteval log

    acc               r has the largest ℓ
    acc_norm          r has the largest ℓ ÷ characters of the option
    acc_mutual_info   r has the largest ℓ − ℓ without the prompt

An option counts without the white space before it. Harnesses count that in some versions, so `acc_norm` is accepted
either way. Options whose values are equal leave open which of them was taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchcast.errors import InputError

EQUAL = 1e-9  # relative difference of values that may be a tie
ACCURACIES = ("acc", "acc_norm", "acc_mutual_info")
REMEDY = (
    "evaluate again, or move this file away to take its scores alone (versions before 0.4.9 log wrong values of acc "
    "and acc_norm beside acc_mutual_info)"
)


def choice_losses(likelihoods: Sequence[float], options: Sequence[str], right: int) -> tuple[float, float]:
    """−log_softmax(ℓ)[r], and the same with ℓ per character of the bare option; NaN where an option has none.

    >>> choice_losses([-1.0, -1.0], [" a", " bc"], 0)
    (0.6931471805599453, 0.9740769841801067)
    """
    lengths = [len(option.lstrip()) for option in options]
    if not all(lengths):
        return _minus_log_share(likelihoods, right), math.nan
    per_character = [x / n for x, n in zip(likelihoods, lengths, strict=True)]
    return _minus_log_share(likelihoods, right), _minus_log_share(per_character, right)


def _minus_log_share(values: Sequence[float], right: int) -> float:
    most = max(values)
    return max(0.0, most - values[right] + math.log(sum(math.exp(x - most) for x in values)))


def check_item(
    where: str,
    metrics: Mapping[str, object],
    *,
    likelihoods: Sequence[float],
    unconditional: Sequence[float],
    options: Sequence[str],
    right: int,
) -> None:
    """Raise an InputError that names the item if a logged accuracy is not what the log-likelihoods give.

    Parameters
    ----------
    where : the item, for messages
    metrics : what was logged of it; accuracies other than 0 and 1 are not checked
    likelihoods, unconditional : of the options after the prompt, and alone (empty where they were not asked for)
    options : the continuations that were scored
    right : index of the right one
    """
    for name in ACCURACIES:
        logged = metrics.get(name)
        if not isinstance(logged, (int, float)) or isinstance(logged, bool) or logged not in (0, 1):
            continue
        computed = {_is_right(v, right) for v in _ways(name, likelihoods, unconditional, options)}
        if computed and None not in computed and logged not in computed:
            raise InputError(f"{where}: the logged {name} is {logged}, its log-likelihoods give {1 - logged}; {REMEDY}")


def _ways(
    name: str, likelihoods: Sequence[float], unconditional: Sequence[float], options: Sequence[str]
) -> list[Sequence[float]]:
    """The values of which the largest counts for an accuracy, in each way that a harness may compute them."""
    if name == "acc":
        return [likelihoods]
    if name == "acc_mutual_info":
        return [[x - y for x, y in zip(likelihoods, unconditional, strict=True)]] if unconditional else []
    if len(set(options)) == 1:  # then the options are in the prompts, and their lengths are not logged
        return []
    by_length = [[len(option) for option in options], [len(option.lstrip()) for option in options]]
    return [[x / n for x, n in zip(likelihoods, lengths, strict=True)] for lengths in by_length if all(lengths)]


def _is_right(values: Sequence[float], right: int) -> bool | None:
    """Whether the right option has the largest value; None for a tie."""
    most = max(values)
    largest = [i for i, x in enumerate(values) if most - x <= EQUAL * max(1.0, abs(most))]
    if right not in largest:
        return False
    return True if len(largest) == 1 else None
