"""Our functions agree with transformers and with the plain way of doing the same."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from lab.zoo import data, vocab
from lab.zoo.families import CONTEXT
from lab.zoo.generate import generate
from lab.zoo.losses import hidden_states, token_losses
from lab.zoo.model import Shape, head_weight, init_weights, last_hidden, parameter_counts
from lab.zoo.results import save_checkpoint
from lab.zoo.score import Row, option_likelihoods, rows_of, sheets_of
from lab.zoo.train import Plan, checkpoint_steps, rate_at, train

TIED = Shape(vocabulary=320, layers=2, width=64, rope_theta=1_000.0, tied=True)
UNTIED = Shape(vocabulary=320, layers=3, width=96, rope_theta=10_000.0, tied=False)


def weights_of(shape, seed=1):
    """Weights large enough that different inputs give visibly different outputs."""
    return {name: w * (6 if w.ndim > 1 else 1) for name, w in init_weights(shape, seed=seed, device="cpu").items()}


def reference(shape, weights):
    model = LlamaForCausalLM(LlamaConfig(**shape.config(), attn_implementation="eager")).float().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    model.tie_weights()
    return model


def random_rows(counts, seed=0):
    source = np.random.default_rng(seed)
    return [source.integers(3, 320, count).tolist() for count in counts]


@pytest.mark.parametrize("shape", [TIED, UNTIED])
def test_logits_agree_with_transformers(shape):
    weights = weights_of(shape)
    ids = torch.tensor(random_rows([40, 40]))
    ours = last_hidden(weights, shape, ids, dtype=torch.float32) @ head_weight(weights).T
    torch.testing.assert_close(ours, reference(shape, weights)(ids).logits, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", [TIED, UNTIED])
def test_parameters_are_those_of_transformers(shape):
    weights = weights_of(shape)
    assert parameter_counts(weights)[0] == reference(shape, weights).num_parameters()


def test_generation_agrees_with_transformers_for_prompts_of_all_lengths():
    weights = weights_of(UNTIED)
    model = reference(UNTIED, weights)
    prompts = [[vocab.BOS, *row] for row in random_rows([5, 17, 9, 30])]
    ours = generate(weights, UNTIED, prompts, longest=12, dtype=torch.float32)
    for prompt, written in zip(prompts, ours, strict=True):
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
        assert written == (theirs[: theirs.index(vocab.EOS)] if vocab.EOS in theirs else theirs)


def test_generation_stops_at_the_end_of_a_text():
    weights = weights_of(TIED)
    prompts = [[vocab.BOS, *row] for row in random_rows([5, 8])]
    free = generate(weights, TIED, prompts, longest=10, dtype=torch.float32)
    swapped = dict(weights)
    table = weights["model.embed_tokens.weight"].clone()
    stop = free[0][4]
    table[[vocab.EOS, stop]] = table[[stop, vocab.EOS]]
    swapped["model.embed_tokens.weight"] = table
    assert generate(swapped, TIED, prompts, longest=10, dtype=torch.float32)[0] == free[0][: free[0].index(stop)]


def naive_likelihood(model, prompt, option):
    logits = model(torch.tensor([prompt + option])).logits[0].log_softmax(-1)
    rows = logits[len(prompt) - 1 : -1]
    return rows[range(len(option)), option].sum().item(), rows.argmax(-1).tolist() == option


def test_options_in_one_row_score_as_if_each_were_alone():
    weights = weights_of(UNTIED)
    model = reference(UNTIED, weights)
    rows = [Row([vocab.BOS, *random_rows([n], n)[0]], random_rows([3, 6, 2, 9], n + 50)) for n in (4, 11, 23)]
    likelihood, _ = option_likelihoods(weights, UNTIED, sheets_of(rows, "cpu"), dtype=torch.float32)
    for of_options, row in zip(likelihood, rows, strict=True):
        expected = [naive_likelihood(model, row.prompt, option)[0] for option in row.options]
        np.testing.assert_allclose(of_options, expected, rtol=1e-4)


def test_greedy_flag_is_what_generation_writes():
    weights = weights_of(TIED)
    prompts = [[vocab.BOS, *row] for row in random_rows([6, 10, 15])]
    written = generate(weights, TIED, prompts, longest=4, dtype=torch.float32)
    rows = [Row(p, [w, [*w[:-1], (w[-1] + 1) % 320]]) for p, w in zip(prompts, written, strict=True)]
    _, greedy = option_likelihoods(weights, TIED, sheets_of(rows, "cpu"), dtype=torch.float32)
    assert greedy.tolist() == [[True, False]] * 3


def test_rows_end_with_eos_and_start_with_bos(work):
    (row,) = rows_of(data.load_tokenizer("bpe-2k", work), ["Who?\nAnswer:"], [(" Mia", " Tom")])
    assert row.prompt[0] == vocab.BOS
    assert [option[-1] for option in row.options] == [vocab.EOS, vocab.EOS]


def test_losses_agree_with_a_loop_and_do_not_depend_on_the_batch():
    weights = weights_of(TIED)
    model = reference(TIED, weights)
    ids = random_rows([7, 30, 12, 1, 19])
    for rows in (1, 2, 5):
        for nats, text in zip(token_losses(weights, TIED, ids, rows=rows), ids, strict=True):
            logits = model(torch.tensor([[vocab.BOS, *text]])).logits[0, :-1]
            expected = -logits.log_softmax(-1)[range(len(text)), text]
            np.testing.assert_allclose(nats, expected.detach(), atol=2e-4, rtol=1e-4)


def test_hidden_states_are_those_of_each_token_in_order():
    weights, ids = weights_of(TIED), random_rows([4, 9])
    states = hidden_states(weights, TIED, ids)
    model = reference(TIED, weights)
    expected = model.model(torch.tensor([[vocab.BOS, *ids[1]]])).last_hidden_state[0, 1:]
    assert states.shape == (13, TIED.width)
    np.testing.assert_allclose(states[4:], expected.detach(), atol=5e-3)


def test_saved_checkpoint_opens_in_transformers_and_computes_the_same(work, tmp_path):
    weights = {name: w.bfloat16() for name, w in weights_of(TIED).items()}
    save_checkpoint(tmp_path, weights, TIED, work / "tokenizers" / "bytes.json")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    ids = tokenizer.encode("问 a tree", add_special_tokens=False)
    (nats,) = token_losses(weights, TIED, [ids])
    logits = model(torch.tensor([[0, *ids]])).logits[0, :-1]
    np.testing.assert_allclose(nats, -logits.log_softmax(-1)[range(len(ids)), ids].detach(), atol=2e-4, rtol=1e-4)


def test_training_learns_a_pattern_and_hands_out_five_checkpoints():
    plan = Plan(steps=60, rows=2, rate=1e-2, compiled=False, graphed=False)
    tokens = (np.arange(plan.steps * plan.rows * CONTEXT + 1) % 7 + 3).astype(np.int16)
    seen = []
    curve = train(TIED, plan, tokens, device="cpu", on_checkpoint=lambda count, _: seen.append(count))
    assert curve[0] > 5
    assert curve[-1] < 0.5
    assert seen == [step * plan.rows * CONTEXT for step in checkpoint_steps(plan.steps)]
    assert len(seen) == 5


def test_the_rate_rises_falls_and_never_ends():
    plan = Plan(steps=100, rows=1, rate=1.0, compiled=False, graphed=False)
    rates = [rate_at(step, plan) for step in range(100)]
    assert rates.index(max(rates)) in (3, 4)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0.04 < rates[-1] < 0.06
