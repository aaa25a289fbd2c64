"""LMDeploy needs CUDA; what is tested here is how its logits, rows of a whole prompt, are read."""

import numpy as np
import pytest
import torch

from benchcast.backends.lmdeploy import read_logits
from benchcast.errors import InputError

IDS = [5, 2, 7, 1]


def naive(logits: np.ndarray) -> list[float]:
    rows = logits.astype(np.float64)
    return [float(np.log(np.exp(rows[i]).sum()) - rows[i, token]) for i, token in enumerate(IDS[1:])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_row_i_predicts_token_i_plus_1_and_the_generated_row_is_dropped(dtype):
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(len(IDS) + 1, 9)).astype(np.float32)).to(dtype)
    nats = read_logits(logits, IDS)
    assert np.isnan(nats[0])
    np.testing.assert_allclose(nats[1:], naive(logits.float().numpy()), atol=1e-5)


def test_fewer_rows_than_tokens_is_an_error():
    with pytest.raises(InputError, match="3 rows of logits for 4 tokens"):
        read_logits(torch.zeros(3, 9), IDS)
