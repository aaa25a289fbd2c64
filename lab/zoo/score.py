"""Score a checkpoint on held-out items, in bfloat16.

choice        log-likelihood of each option and the end of the text behind the prompt; the largest wins
              (per byte for events, whose endings differ in length)
exact         the answer and the end of the text are what greedy decoding gives: one forward pass tells
steps-exact   greedy generation of the steps, then the number behind the last "Answer:" is compared
steps-choice  greedy generation of the steps, then a choice behind the generated steps

All options of an item share one row: they see the prompt and themselves, never each other.
"""

from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from lab.zoo import vocab
from lab.zoo.generate import generate
from lab.zoo.model import Shape, Weights, head_weight, last_hidden
from lab.zoo.skills.common import ANSWER, STEPS, Item, Skill

SHEET_TOKENS = 1 << 16
PER_BYTE = {"events"}


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and its options as token ids; each option ends with <eos>."""

    prompt: list[int]
    options: list[list[int]]

    def __len__(self) -> int:
        return len(self.prompt) + sum(map(len, self.options))


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def rows_of(tokenizer: Tokenizer, prompts: list[str], options: list[tuple[str, ...]]) -> list[Row]:
    ids = iter(encode(tokenizer, [text for group in options for text in group]))
    heads = encode(tokenizer, prompts)
    return [
        Row([vocab.BOS, *head], [[*next(ids), vocab.EOS] for _ in group])
        for head, group in zip(heads, options, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Some rows laid out for one forward pass."""

    chosen: list[int]  # which rows these are
    options: int  # options of each row
    ids: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor  # of each option token: row, position that predicts it, its id, its option


def lay_out(rows: list[Row], chosen: list[int], device: str) -> Sheet:
    width = -(-max(len(rows[i]) for i in chosen) // 8) * 8
    ids = np.full((len(chosen), width), vocab.PAD)
    positions = np.zeros((len(chosen), width), dtype=np.int64)
    segments = np.full((len(chosen), width), -1)
    targets = []
    for r, row in enumerate(rows[i] for i in chosen):
        at = start = len(row.prompt)
        ids[r, :at], positions[r, :at], segments[r, :at] = row.prompt, np.arange(at), 0
        for number, option in enumerate(row.options):
            span = slice(at, at + len(option))
            ids[r, span], segments[r, span] = option, number + 1
            positions[r, span] = start + np.arange(len(option))
            before = [start - 1, *range(at, at + len(option) - 1)]
            targets += [(r, place, token, number) for place, token in zip(before, option, strict=True)]
            at += len(option)
    seen = torch.from_numpy(segments).to(device)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    visible = (seen[:, None, :] == 0) | (seen[:, None, :] == seen[:, :, None])
    placed = torch.from_numpy(ids).to(device), torch.from_numpy(positions).to(device)
    return Sheet(
        chosen, len(rows[0].options), *placed, (visible & causal)[:, None], torch.tensor(targets, device=device)
    )


def sheets_of(rows: list[Row], device: str) -> list[Sheet]:
    """All rows, longest first, in sheets of about SHEET_TOKENS tokens."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    sheets = []
    while order:
        take = max(1, SHEET_TOKENS // (len(rows[order[0]]) + 8))
        sheets.append(lay_out(rows, order[:take], device))
        order = order[take:]
    return sheets


@torch.inference_mode()
def sheet_likelihoods(
    weights: Weights, shape: Shape, sheet: Sheet, dtype: torch.dtype
) -> tuple[np.ndarray, np.ndarray]:
    row, source, token, option = sheet.targets.unbind(1)
    states = last_hidden(weights, shape, sheet.ids, dtype=dtype, positions=sheet.positions, mask=sheet.mask)
    logits = F.linear(states[row, source], head_weight(weights).to(dtype)).float()
    slots = row * sheet.options + option
    total = torch.zeros(len(sheet.chosen) * sheet.options, device=logits.device)
    likelihood = total.index_add(0, slots, -F.cross_entropy(logits, token, reduction="none"))
    misses = total.index_add(0, slots, (logits.argmax(-1) != token).float())
    size = (len(sheet.chosen), sheet.options)
    return likelihood.cpu().numpy().reshape(size), misses.cpu().numpy().reshape(size) == 0


def option_likelihoods(
    weights: Weights, shape: Shape, sheets: list[Sheet], *, dtype: torch.dtype = torch.bfloat16
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood of every option, and whether greedy decoding would write it: both (rows, options)."""
    size = (sum(len(sheet.chosen) for sheet in sheets), sheets[0].options)
    likelihood, greedy = np.zeros(size), np.zeros(size, dtype=bool)
    for sheet in sheets:
        likelihood[sheet.chosen], greedy[sheet.chosen] = sheet_likelihoods(weights, shape, sheet, dtype)
    return likelihood, greedy


def choose(likelihood: np.ndarray, items: list[Item], *, per_byte: bool) -> np.ndarray:
    """Whether the likeliest option is the answer."""
    lengths = np.array([[len(option.encode()) for option in item.options] for item in items])
    best = (likelihood / lengths if per_byte else likelihood).argmax(1)
    return best == np.array([item.options.index(item.answer) for item in items])


class Exam:
    """The scored items of all skills, tokenised once for a family."""

    def __init__(self, tokenizer: Tokenizer, count: int, device: str, skills: dict[str, Skill]) -> None:
        self.tokenizer, self.device, self.skills = tokenizer, device, skills
        self.items = {name: skill.items("score", count) for name, skill in skills.items()}
        self.sheets: dict[str, list[Sheet]] = {}
        self.prompts: dict[str, list[list[int]]] = {}
        self.longest: dict[str, int] = {}
        for name, items in self.items.items():
            if skills[name].scoring.startswith("steps"):
                self.prompts[name] = [[vocab.BOS, *ids] for ids in encode(tokenizer, [i.prompt + STEPS for i in items])]
                written = encode(tokenizer, [i.steps.removeprefix(STEPS) + i.cue + i.answer for i in items])
                self.longest[name] = max(map(len, written)) + 1
            else:
                options = [item.options or (item.answer,) for item in items]
                rows = rows_of(tokenizer, [i.prompt + i.cue for i in items], options)
                self.sheets[name] = sheets_of(rows, device)

    def mark(self, weights: Weights, shape: Shape) -> dict[str, np.ndarray]:
        """For every skill, whether each item was answered right."""
        return {name: self.mark_skill(name, weights, shape) for name in self.items}

    def mark_skill(self, name: str, weights: Weights, shape: Shape) -> np.ndarray:
        """For one skill, whether each item was answered right."""
        items, scoring = self.items[name], self.skills[name].scoring
        if scoring == "exact":
            return option_likelihoods(weights, shape, self.sheets[name])[1][:, 0]
        if scoring == "choice":
            return choose(option_likelihoods(weights, shape, self.sheets[name])[0], items, per_byte=name in PER_BYTE)
        new = generate(weights, shape, self.prompts[name], longest=self.longest[name])
        written = self.tokenizer.decode_batch(new)
        if scoring == "steps-exact":
            return np.array([w.rpartition(ANSWER)[2] == i.answer for w, i in zip(written, items, strict=True)])
        prompts = [i.prompt + STEPS + w.split("\n")[0] + i.cue for w, i in zip(written, items, strict=True)]
        rows = rows_of(self.tokenizer, prompts, [item.options for item in items])
        return choose(option_likelihoods(weights, shape, sheets_of(rows, self.device))[0], items, per_byte=False)
