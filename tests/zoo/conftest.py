"""Keeps the tests of the zoo on one core."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="session", autouse=True)
def one_core():
    import torch

    torch.set_num_threads(1)
