"""Keeps the tests of the zoo on one core."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="session", autouse=True)
def one_core():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """A work folder with all tokenizers, trained on a little text."""
    from lab.zoo import data, vocab

    folder = tmp_path_factory.mktemp("zoo")
    (folder / "background.json").write_text(
        '["The quick brown fox jumps over the lazy dog, as documented in this module."]'
    )
    data.TOKENIZER_TEXTS = 1500
    for name in vocab.RECIPES:
        data.train_tokenizer(name, folder)
    return folder
