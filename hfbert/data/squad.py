"""Turn questions into windows of token ids, and what a model says of each window into answers.

"What is hot?", "Tea is hot."
    ->  {"input_ids": [CLS] what is hot ? [SEP] tea is hot . [SEP], "start_positions": 6, "end_positions": 6}
    ->  Answer(text="Tea", start=0, end=3, score=14.2)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from hfbert.data.questions import Question
from hfbert.data.tokenizer import encode_with_offsets

_BATCH = 1000
Offsets = list[tuple[int, int]]


@dataclass(frozen=True)
class Answer:
    """A stretch of a context: `text` is context[start:end]; `score` the sum of its two logits."""

    text: str
    start: int
    end: int
    score: float


def make_features(
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    doc_stride: int,
    has_labels: bool = False,
) -> list[dict[str, Any]]:
    """Windows [CLS] question [SEP] part of the context [SEP] of every question, in order (section 4.2).

    Each starts `doc_stride` tokens after the one before it, or earlier where it would skip some, and the last
    one ends with the context. A window holds `input_ids`, `token_type_ids`, the number of its `question`,
    `offsets` (characters of each context token), `first` (position of the first of them) and `is_best`: which
    tokens it sees with more context than the other windows do. With `has_labels` it says where the first
    answer starts and ends, 0 and 0 ([CLS]) where it does not hold it whole.

    ValueError for a `doc_stride` not below `max_length`, and for a question that leaves no room.
    """
    if not 0 < doc_stride < max_length:
        raise ValueError(f"--doc_stride {doc_stride} is not from 1 to below --max_length {max_length}")
    contexts = _encode_all({question.context for question in questions}, tokenizer)
    asked = _encode_all({question.question for question in questions}, tokenizer)
    features = []
    for number, question in enumerate(questions):
        ids, _ = asked[question.question]
        head = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        capacity = max_length - len(head) - 1
        if capacity < 1:
            raise ValueError(
                f"{question.place}: a question of {len(ids)} tokens leaves no room for its context in "
                f"--max_length {max_length}; raise it or shorten the question"
            )
        context_ids, offsets = contexts[question.context]
        starts = find_starts(len(context_ids), capacity, doc_stride)
        for start, is_best in zip(starts, _find_best(starts, len(context_ids), capacity), strict=True):
            part = slice(start, start + capacity)
            own = context_ids[part]
            feature = {
                "input_ids": [*head, *own, tokenizer.sep_token_id],
                "token_type_ids": [0] * len(head) + [1] * (len(own) + 1),
                "question": number,
                "offsets": offsets[part],
                "first": len(head),
                "is_best": is_best,
            }
            features.append(feature | (_mark(feature, question) if has_labels else {}))
    return features


def _encode_all(texts: set[str], tokenizer: PreTrainedTokenizerBase) -> dict[str, tuple[list[int], Offsets]]:
    """Each text once: a context has many questions."""
    ordered = sorted(texts)
    found: dict[str, tuple[list[int], Offsets]] = {}
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        found |= dict(zip(batch, encode_with_offsets(batch, tokenizer), strict=True))
    return found


def find_starts(length: int, capacity: int, doc_stride: int) -> list[int]:
    """Where windows of `capacity` tokens start that together hold all of `length`; one for no tokens."""
    last = max(0, length - capacity)
    starts = list(range(0, last, min(doc_stride, capacity)))
    return [*starts, last]


def _find_best(starts: Sequence[int], length: int, capacity: int) -> list[np.ndarray]:
    """For each window, (tokens,) bool: whether no other window has more on the poorer side of the token."""
    context = np.full((len(starts), length), -1)
    for number, start in enumerate(starts):
        size = min(capacity, length - start)
        places = np.arange(size)
        context[number, start : start + size] = np.minimum(places, size - 1 - places)
    owner = context.argmax(0)
    return [
        owner[start : start + min(capacity, length - start)] == number for number, start in enumerate(starts)
    ]


def _mark(feature: dict[str, Any], question: Question) -> dict[str, int]:
    found = None
    if question.answers:
        start = question.starts[0]
        found = find_tokens(feature["offsets"], start, start + len(question.answers[0]))
    first, last = (0, 0) if found is None else (feature["first"] + found[0], feature["first"] + found[1])
    return {"start_positions": first, "end_positions": last}


def find_tokens(offsets: Offsets, start: int, end: int) -> tuple[int, int] | None:
    """First and last of the tokens that cover context[start:end]; None if a window does not hold it whole."""
    touching = [number for number, (begin, stop) in enumerate(offsets) if begin < end and stop > start]
    if not touching or offsets[0][0] > start or offsets[-1][1] < end:
        return None
    return touching[0], touching[-1]


def best_answers(
    windows: Sequence[dict[str, Any]],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    context: str,
    n_best: int = 20,
    max_answer_length: int = 30,
) -> tuple[list[Answer], float]:
    """The best stretches of up to `max_answer_length` tokens over all windows of a question, best first.

    Also the score of no answer: the lowest sum of [CLS]'s two logits, as BERT's own code takes it for SQuAD
    2.0. Logits are (S,) of each window, of which padding is not looked at. A context without tokens has no
    answers.
    """
    found: dict[tuple[int, int], float] = {}
    null_score = min(
        float(starts[0] + ends[0]) for starts, ends in zip(start_logits, end_logits, strict=True)
    )
    for window, starts, ends in zip(windows, start_logits, end_logits, strict=True):
        own = slice(window["first"], window["first"] + len(window["offsets"]))
        # A token's answer is taken from the window that sees it best.
        masked = np.where(window["is_best"], starts[own], -np.inf)
        for first, last, score in _best_spans(masked, ends[own], n_best, max_answer_length):
            place = window["offsets"][first][0], window["offsets"][last][1]
            found[place] = max(score, found.get(place, -np.inf))
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:n_best]
    return [Answer(context[start:end], start, end, score) for (start, end), score in ranked], null_score


def _best_spans(
    starts: np.ndarray, ends: np.ndarray, n_best: int, max_answer_length: int
) -> list[tuple[int, int, float]]:
    """The `n_best` (first, last, score) of one window, exactly: every start with every end in reach."""
    size = len(starts)
    if size == 0:
        return []
    reach = min(max_answer_length, size)
    padded = np.concatenate([ends, np.full(reach - 1, -np.inf)])
    sums = starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, reach)  # (size, reach)
    flat = sums.ravel()
    chosen = np.argpartition(-flat, min(n_best, flat.size) - 1)[:n_best]
    spans = [(int(one // reach), int(one // reach + one % reach), float(flat[one])) for one in chosen]
    return [span for span in spans if span[2] > -np.inf]


def softmax(scores: Sequence[float]) -> list[float]:
    """Shares of 1 from scores."""
    if not scores:
        return []
    weights = np.exp(np.asarray(scores, dtype=np.float64) - max(scores))
    return (weights / weights.sum()).tolist()
