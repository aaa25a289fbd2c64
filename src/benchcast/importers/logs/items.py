"""One item of an evaluation log: its prompt, its right answer, and what the model made of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchcast.records import Text

DOCUMENTS = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)
# Keys of documents under which benchmarks store what several of their questions share: DROP and RACE a passage or
# article, CoQA a story, SQuAD and LogiQA a context, HellaSwag its video.
PASSAGES = ("passage_id", "passage", "paragraph", "article", "story", "context", "source_id")


@dataclass(frozen=True, slots=True)
class LoggedItem:
    """One item as one model answered it."""

    task: str
    number: int | str  # position or id of the item in its benchmark
    document: str  # hash of the item's content, without the prompt
    prompt: str = ""  # everything before the answer, with the examples of few-shot prompts
    answer: str = ""  # the right answer with the space before it; empty if it is unknown
    nats: float = math.nan  # loss of the whole answer; NaN if it was not logged
    options: int = 0  # number of answers to choose from; 0 if the answer is free
    metrics: Mapping[str, float] = field(default_factory=dict)  # metric, as in the results → value for this item
    doc_hash: str = ""  # of the document, as lm-evaluation-harness computes it
    prompt_hash: str = ""  # of the first prompt that was sent, as lm-evaluation-harness computes it
    choice: float = math.nan  # choice loss of the right answer among the options; NaN without options
    choice_norm: float = math.nan  # the same from log-likelihoods per character
    text_hash: str = ""  # of prompt and answer, as in the id of its text; empty: not computed yet
    passage: str = ""  # hash of the passage that the document shares with others; empty if it names none

    @property
    def has_loss(self) -> bool:
        """Whether the log holds the loss of the right answer."""
        return math.isfinite(self.nats)

    @property
    def text_id(self) -> str:
        """Id of its text in a study; another prompt or answer has another id."""
        return f"{self.task}-{self.number}-{self.text_hash or hash_of_text(self.prompt, self.answer)}"

    def as_text(self) -> Text:
        """The item as a text: the prompt and its right answer; without a prompt it has no answer span."""
        start = len(self.prompt.encode()) if self.prompt else None
        return Text(id=self.text_id, source=self.task, text=self.prompt + self.answer, answer_start=start)

    def drawn(self, share: float, seed: int) -> bool:
        """Whether the item is in a random share of all items; the same for every task that asks the same question."""
        return is_drawn(self.document, share, seed)


def hash_of_text(prompt: str, answer: str) -> str:
    """Hash of a prompt and its answer, the last part of a text's id."""
    return hashlib.sha256(f"{prompt}\0{answer}".encode(errors="surrogatepass")).hexdigest()[:8]


def is_drawn(document: str, share: float, seed: int) -> bool:
    """Whether the item with this hash of its document is in a random share of all items."""
    digest = hashlib.sha256(f"{seed} {document}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def hash_document(document: Any) -> str:
    """Hash of an item's content as it was logged; the order of keys does not matter."""
    content = DOCUMENTS.encode(document)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]


def hash_text(text: str) -> str:
    """SHA-256 of a text, the hash that lm-evaluation-harness logs of prompts."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def hash_logged(document: Any) -> str:
    """The `doc_hash` that lm-evaluation-harness logs since 0.4.3, for logs that lack it."""
    return hash_text(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def passage_of(document: Any) -> str:
    """Hash of the passage that a document names, which several items may share; empty if it names none."""
    for key in PASSAGES if isinstance(document, Mapping) else ():
        if document.get(key):
            return hash_document(document[key])
    return ""


def spaces_to_answer(prompt: str, answer: str) -> tuple[str, str]:
    """Move white space at the end of the prompt to the answer, where harnesses count its loss."""
    kept = prompt.rstrip()
    return (kept, prompt[len(kept) :] + answer) if kept else (prompt, answer)
