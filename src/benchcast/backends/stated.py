"""What a loaded model says of itself for models.csv: its parameters, and what its configuration states.

From config.json are read: the number of training tokens, under `training_tokens`, `num_training_tokens`, `train_tokens`
or `tokens_seen`, and the family, under `model_family` or `family`. Nothing is guessed: `model_type` names an
architecture that many families share, and is not read.
"""

from __future__ import annotations

import math
from typing import Any

from benchcast.backends.base import is_number
from benchcast.records import ModelInfo

TOKENS = ("training_tokens", "num_training_tokens", "train_tokens", "tokens_seen")
FAMILY = ("model_family", "family")
LONGEST_FAMILY = 100  # characters
PREFIX = "model_"  # of these entries in `about()`


def stated(model: Any) -> dict[str, str]:
    """Entries of `about()` for a model of transformers: parameters, training tokens and family, where known."""
    params = count_parameters(model)
    return {**({f"{PREFIX}params": str(params)} if params else {}), **_configured(model.config)}


def count_parameters(model: Any) -> int:
    """Parameters of a module, tied ones once; 0 where quantisation has packed them."""
    parameters = list(model.parameters())
    return sum(p.numel() for p in parameters) if all(p.is_floating_point() for p in parameters) else 0


def stated_by_config(source: str, *, revision: str = "", trust_remote_code: bool = False) -> dict[str, str]:
    """The same from a configuration alone, for a model that another library holds; nothing where it cannot be read."""
    import torch
    import transformers

    given = {"trust_remote_code": trust_remote_code}
    try:
        config = transformers.AutoConfig.from_pretrained(source, revision=revision or "main", **given)
        with torch.device("meta"):  # no memory is taken
            return stated(transformers.AutoModelForCausalLM.from_config(config, **given))
    except (ImportError, OSError, ValueError, KeyError, RuntimeError):
        return {}


def metadata_of(about: dict[str, str]) -> ModelInfo:
    """The row of models.csv that `about()` of a backend amounts to, without a name."""
    params, tokens = (float(about.get(PREFIX + key, "nan")) for key in ("params", "tokens"))
    return ModelInfo("", about.get(f"{PREFIX}family", ""), params, tokens)


def without_metadata(about: dict[str, str]) -> dict[str, str]:
    """What is stored with losses and features: `about()` less what goes to models.csv."""
    return {key: value for key, value in about.items() if not key.startswith(PREFIX)}


def _configured(config: Any) -> dict[str, str]:
    tokens = next((v for v in (getattr(config, key, None) for key in TOKENS) if is_number(v) and v >= 1), math.nan)
    family = next((v for v in (getattr(config, key, None) for key in FAMILY) if isinstance(v, str)), "").strip()
    usable = family.isprintable() and 0 < len(family) <= LONGEST_FAMILY
    return {
        **({f"{PREFIX}tokens": repr(float(tokens))} if tokens == tokens else {}),
        **({f"{PREFIX}family": family} if usable else {}),
    }
