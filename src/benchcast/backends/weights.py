"""Check that a checkpoint has the weights its configuration needs; transformers fills gaps with random numbers."""

from __future__ import annotations

import re
from typing import Any

from benchcast.errors import InputError

SHOWN = 3
# buffers that older versions of transformers stored and newer ones compute
BUFFERS = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$|(^|\.)position_ids$|attn\.(masked_)?bias$|"
                     r"attention\.(masked_)?bias$")  # fmt: skip


def refuse_incomplete(model: Any, info: dict[str, Any], source: str) -> None:
    """Raise InputError if weights are missing, unexpected or of another shape.

    Parameters
    ----------
    model : the loaded transformers model
    info : the loading info of `from_pretrained(output_loading_info=True)`
    source : path or hub id, for the message
    """
    name = type(model).__name__
    missing = _not_tied(model, set(info.get("missing_keys", ())))
    if missing:
        raise InputError(
            f"{source}: the checkpoint lacks {len(missing)} of the weights of {name} ({_some(missing)}), which "
            "would be random numbers; is the checkpoint complete, and is config.json of the same model?"
        )
    unexpected = {key for key in info.get("unexpected_keys", ()) if not BUFFERS.search(key)}
    if unexpected:
        raise InputError(
            f"{source}: the checkpoint has {len(unexpected)} weights that {name} with its config.json does not use "
            f"({_some(unexpected)}); is config.json of the same model?"
        )
    mismatched = {str(entry[0] if isinstance(entry, tuple) else entry) for entry in info.get("mismatched_keys", ())}
    if mismatched:
        raise InputError(
            f"{source}: {len(mismatched)} weights of the checkpoint have another shape than {name} with its "
            f"config.json ({_some(mismatched)}); is config.json of the same model?"
        )


def _not_tied(model: Any, missing: set[str]) -> set[str]:
    """Missing parameters except tied ones, which share memory with a loaded parameter."""
    if not missing:
        return missing
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    loaded = {tensor.data_ptr() for name, tensor in tensors.items() if name not in missing}
    return {name for name in missing if name not in tensors or tensors[name].data_ptr() not in loaded}


def _some(keys: set[str]) -> str:
    """The first few names in sorted order."""
    first = sorted(keys)[:SHOWN]
    return ", ".join(first) + (", …" if len(keys) > SHOWN else "")
