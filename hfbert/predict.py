"""Turn texts into what a trained model says of them, as plain Python.

predictor = load_predictor("fill_mask", "runs/tiny/model")
fill_mask(predictor, ["Returns the [MASK]."])[0]["filled"]  ->  "Returns the number."

Texts may be of any length and hold anything: a typed "[SEP]" is text. Rows are computed sorted by length, in
batches, and come back in the order they were given.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hfbert.data.classification import cut_pair
from hfbert.data.features import FeatureCollator, length_of
from hfbert.data.ner import make_windows
from hfbert.data.questions import Question
from hfbert.data.squad import Answer, best_answers, make_features, softmax
from hfbert.data.tags import OUTSIDE, detect_scheme, split_tag, to_iob2
from hfbert.data.tokenizer import encode_plain, encode_with_offsets, encode_with_words, load_tokenizer
from hfbert.model.modeling_hfbert import (
    HFBertForMaskedLM,
    HFBertForNextSentencePrediction,
    HFBertForQuestionAnswering,
    HFBertForSequenceClassification,
    HFBertForTokenClassification,
)

HEADS: dict[str, Any] = {
    "fill_mask": HFBertForMaskedLM,
    "next_sentence": HFBertForNextSentencePrediction,
    "classify": HFBertForSequenceClassification,
    "tag": HFBertForTokenClassification,
    "answer": HFBertForQuestionAnswering,
}
# Their weights have the same names, and those of tags are a part of those of sentences: only what the model
# calls itself tells them apart (older taggers carry a pooler too).
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice")
Row = dict[str, Any]


@dataclass(frozen=True)
class Predictor:
    """A model for one task and its tokenizer, loaded once."""

    task: str
    model: Any
    tokenizer: PreTrainedTokenizerBase
    batch_size: int = 32

    @property
    def max_length(self) -> int:
        return int(self.model.config.max_position_embeddings)


def load_predictor(task: str, name_or_path: str, batch_size: int = 32) -> Predictor:
    """A model with a trained head for "fill_mask", "next_sentence", "classify", "tag" or "answer".

    Any BERT will do, by folder or by name on the Hub. ValueError in one line when there is none, or when its
    head for the task would be random weights.
    """
    if task not in HEADS:
        raise ValueError(f"task {task!r} is not one of {', '.join(HEADS)}")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be 1 or more")
    try:
        model, report = HEADS[task].from_pretrained(
            os.path.expanduser(name_or_path), dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # a missing name and a broken file raise different types in every version
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise ValueError(f"{name_or_path} cannot be loaded as a model ({reason}); check the name") from None
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"{name_or_path} has no trained head for {task} ({missing[0]} is not in it): name one that has"
        )
    other = find_other_head(task, model.config.architectures)
    if other:
        raise ValueError(f"{name_or_path} has no trained head for {task} (it is {other}): name one that has")
    model.config.sparse_prediction = True  # logits of masked LM where a label asks for them
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Predictor(task, model.eval().to(device), load_tokenizer(name_or_path), batch_size)


def find_other_head(task: str, architectures: Sequence[str] | None) -> str | None:
    """The class of a model that classifies something else than the task does; None if there is none."""
    own = HEADS[task].__name__.removeprefix("HFBert")
    named = [name for name in architectures or () if name.endswith(CLASSIFIERS)]
    if own not in CLASSIFIERS or not named or any(name.endswith(own) for name in named):
        return None
    return named[0]


@torch.inference_mode()
def compute(
    predictor: Predictor, rows: Sequence[Row], read: Callable[[Any, list[Row]], list[Any]]
) -> list[Any]:
    """What `read` makes of the model's outputs for each row, in the order of the rows.

    `read` takes the outputs of a batch and its rows, and gives something for each.
    """
    found: list[Any] = [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda number: length_of(rows[number]))
    collate = FeatureCollator(predictor.tokenizer.pad_token_id)
    for start in range(0, len(order), predictor.batch_size):
        numbers = order[start : start + predictor.batch_size]
        batch = [rows[number] for number in numbers]
        tensors = {name: value.to(predictor.model.device) for name, value in collate(batch).items()}
        for number, result in zip(numbers, read(predictor.model(**tensors), batch), strict=True):
            found[number] = result
    return found


def _read_logits(outputs: Any, rows: list[Row]) -> list[Tensor]:
    """(num_labels,) of each row, or (S, num_labels) of its own S tokens."""
    logits = outputs.logits.float().cpu()
    if logits.dim() == 2:
        return list(logits)
    return [own[: length_of(row)] for own, row in zip(logits, rows, strict=True)]


def _wrap(tokenizer: PreTrainedTokenizerBase, *parts: list[int]) -> Row:
    """[CLS] first [SEP], and second [SEP] if there are two."""
    input_ids, segments = [tokenizer.cls_token_id], [0]
    for number, ids in enumerate(parts):
        input_ids += [*ids, tokenizer.sep_token_id]
        segments += [number] * (len(ids) + 1)
    return {"input_ids": input_ids, "token_type_ids": segments}


def fill_mask(predictor: Predictor, texts: Sequence[str], top_k: int = 5) -> list[dict[str, Any]]:
    """The likeliest pieces at each mask of each text, and the text with the likeliest ones put in.

    {"filled", "is_cut", "masks": [{"start", "end", "candidates": [{"token", "score"}]}]}: scores are
    probabilities over the whole vocabulary, special tokens are no candidates. Of a text longer than the model
    is, what fits round each mask is read (`is_cut`). ValueError for a text without a mask, and for a `top_k`
    below 1.
    """
    if top_k < 1:
        raise ValueError(f"top_k={top_k} must be 1 or more")
    tokenizer, room = predictor.tokenizer, predictor.max_length - 2
    rows: list[Row] = []
    owners: list[int] = []
    for number, text in enumerate(texts):
        ids, masks = _encode_masked(text, tokenizer)
        groups = [masks] if len(ids) <= room else [[mask] for mask in masks]
        for group in groups:
            start = max(0, min(group[0] - room // 2, len(ids) - room))
            row = _wrap(tokenizer, ids[start : start + room])
            labels = [-100] * len(row["input_ids"])
            for mask in group:
                labels[mask - start + 1] = 0  # any label: it says where logits are wanted
            rows.append(row | {"labels": labels, "is_cut": len(ids) > room})
            owners.append(number)
    found = compute(predictor, rows, lambda outputs, batch: _read_masks(predictor, outputs, batch, top_k))
    results = []
    for number, text in enumerate(texts):
        own = [place for place, owner in enumerate(owners) if owner == number]
        candidates = [one for place in own for one in found[place]]
        results.append(_describe_masks(text, tokenizer, candidates) | {"is_cut": rows[own[0]]["is_cut"]})
    return results


def find_masks(text: str, mask_token: str) -> list[int]:
    """Where the masks of a text start; ValueError when it has none, with a hint for other spellings."""
    places, place = [], text.find(mask_token)
    while place >= 0:
        places.append(place)
        place = text.find(mask_token, place + len(mask_token))
    if not places:
        word = mask_token.strip("[]<>").lower()
        is_misspelt = any(mark.format(word) in text.lower() for mark in ("[{}]", "<{}>", "【{}】", "({})"))
        hint = (
            f"write it as {mask_token}, in these letters" if is_misspelt else f"put {mask_token} for a word"
        )
        raise ValueError(f"no mask in {text[:40]!r}: {hint}")
    return places


def _encode_masked(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Token ids of a text, and where in them its masks are; all else that is typed is text."""
    token = str(tokenizer.mask_token)
    find_masks(text, token)
    ids: list[int] = []
    masks: list[int] = []
    for number, part in enumerate(encode_plain(text.split(token), tokenizer)):
        if number:
            masks.append(len(ids))
            ids.append(tokenizer.mask_token_id)
        ids += part
    return ids, masks


def _read_masks(predictor: Predictor, outputs: Any, rows: list[Row], top_k: int) -> list[list[Any]]:
    """The candidates at each mask of each row; the logits are those of masks only, (masks, V)."""
    tokenizer = predictor.tokenizer
    shares = outputs.logits.float().softmax(-1)
    shares[:, len(tokenizer) :] = -1  # a model may have more rows than its tokenizer has pieces
    shares[:, tokenizer.all_special_ids] = -1
    num_words = min(shares.shape[1], len(tokenizer)) - len(tokenizer.all_special_ids)
    best = shares.topk(min(top_k, num_words))
    ranked = [
        [{"token": token, "score": score} for token, score in zip(tokens, scores, strict=True)]
        for tokens, scores in zip(
            map(tokenizer.convert_ids_to_tokens, best.indices.tolist()),
            best.values.tolist(),
            strict=True,
        )
    ]
    ends = [sum(label == 0 for label in row["labels"]) for row in rows]
    return [[ranked.pop(0) for _ in range(count)] for count in ends]


def _describe_masks(text: str, tokenizer: PreTrainedTokenizerBase, candidates: list[Any]) -> dict[str, Any]:
    """Candidates at their places, and the text with the first of each spliced in."""
    token = str(tokenizer.mask_token)
    masks = [
        {"start": start, "end": start + len(token), "candidates": own}
        for start, own in zip(find_masks(text, token), candidates, strict=True)
    ]
    filled, *rest = text.split(token)
    for own, part in zip(candidates, rest, strict=True):
        piece = own[0]["token"]
        if piece.startswith("##") and len(piece) > 2:  # goes on with the word before it
            filled, piece = filled.rstrip(), piece[2:]
        filled += piece + part
    return {"filled": filled, "masks": masks}


def next_sentence(predictor: Predictor, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """{"is_next", "is_cut"}: the probability that the second sentence follows the first (class 0).

    Of a pair longer than the model is, the end of the first and the beginning of the second are read.
    """
    tokenizer, room = predictor.tokenizer, predictor.max_length - 3
    rows = []
    for first, second in pairs:
        ids = encode_plain([first, second], tokenizer)
        left, right = cut_pair(len(ids[0]), len(ids[1]), room)
        row = _wrap(tokenizer, ids[0][len(ids[0]) - left :], ids[1][:right])
        rows.append(row | {"is_cut": left + right < sum(map(len, ids))})
    logits = compute(predictor, rows, _read_logits)
    return [
        {"is_next": float(own.softmax(-1)[0]), "is_cut": row["is_cut"]}
        for own, row in zip(logits, rows, strict=True)
    ]


def classify(
    predictor: Predictor, texts: Sequence[str | tuple[str, str]], top_k: int | None = None
) -> list[list[dict[str, Any]]]:
    """{"label", "score"} of each label of a text, or of a pair of texts, likeliest first; `top_k` of them.

    Scores are probabilities, of each label by itself for a model with several labels a text; a model that
    scores (regression) gives its number. What is longer than the model is cut at the end.
    """
    tokenizer, room = predictor.tokenizer, predictor.max_length
    rows = []
    for text in texts:
        parts = encode_plain([text] if isinstance(text, str) else list(text), tokenizer)
        sizes = [room - 2] if len(parts) == 1 else cut_pair(len(parts[0]), len(parts[1]), room - 3)
        rows.append(_wrap(tokenizer, *(ids[:size] for ids, size in zip(parts, sizes, strict=True))))
    config = predictor.model.config
    results = []
    for logits in compute(predictor, rows, _read_logits):
        if config.problem_type == "regression" or config.num_labels == 1:
            scores = logits
        elif config.problem_type == "multi_label_classification":
            scores = logits.sigmoid()
        else:
            scores = logits.softmax(-1)
        named = [{"label": config.id2label[i], "score": score} for i, score in enumerate(scores.tolist())]
        results.append(sorted(named, key=lambda one: -one["score"])[:top_k])
    return results


def tag(predictor: Predictor, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Entities {"type", "text", "start", "end", "score"} of each text; `text` is text[start:end].

    A word's tag is that of its first piece, its score the probability of that tag; an entity's the mean over
    its words. Long texts are read in windows, each word where it has most context.
    """
    tokenizer, names = predictor.tokenizer, predictor.model.config.id2label
    scheme = detect_scheme([list(names.values())])
    capacity = predictor.max_length - 2
    rows: list[Row] = []
    encoded = encode_with_words(list(texts), tokenizer)
    for number, words in enumerate(encoded):
        lists = [ids[:capacity] for ids, _, _ in words]
        for window, owned in make_windows([len(ids) for ids in lists], capacity, capacity // 4):
            row = _wrap(tokenizer, [token for word in window for token in lists[word]])
            rows.append(row | {"text": number, "window": window, "owned": owned, "lists": lists})
    tags: list[list[tuple[str, float]]] = [[(OUTSIDE, 0.0)] * len(words) for words in encoded]
    for row, logits in zip(rows, compute(predictor, rows, _read_logits), strict=True):
        place = 1
        for word in row["window"]:
            if word in row["owned"]:
                share, label = logits[place].softmax(-1).max(-1)
                tags[row["text"]][word] = names[int(label)], float(share)
            place += len(row["lists"][word])
    return [
        _join_entities(text, words, own, scheme)
        for text, words, own in zip(texts, encoded, tags, strict=True)
    ]


def _join_entities(
    text: str, words: Sequence[tuple[list[int], int, int]], tags: list[tuple[str, float]], scheme: str
) -> list[dict[str, Any]]:
    entities: list[dict[str, Any]] = []
    scores: list[list[float]] = []
    for name, (_, start, end), (_, score) in zip(
        to_iob2([name for name, _ in tags], scheme), words, tags, strict=True
    ):
        prefix, kind = split_tag(name)
        if prefix == "B":
            entities.append({"type": kind, "text": "", "start": start, "end": end})
            scores.append([score])
        elif prefix == "I":  # in valid IOB2 there is an entity to go on with
            entities[-1]["end"] = end
            scores[-1].append(score)
    return [
        one | {"text": text[one["start"] : one["end"]], "score": sum(own) / len(own)}
        for one, own in zip(entities, scores, strict=True)
    ]


def answer(
    predictor: Predictor,
    questions: Sequence[tuple[str, str]],
    n_best: int = 5,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> list[dict[str, Any]]:
    """The best stretch of the context for each (question, context): {"text", "start", "end", "score", ...}.

    "n_best" holds the best ones, with shares of 1 as scores, and "no_answer_score" how far the score of no
    answer is above the best one's. With a `null_threshold` (of `recipes/squad.py`) the answer is "" when that
    is higher. A question that would take more than half of the model's length is cut at its end.
    """
    tokenizer = predictor.tokenizer
    limit = predictor.max_length // 2
    asked = []
    for question, (_, offsets) in zip(
        questions, encode_with_offsets([one for one, _ in questions], tokenizer), strict=True
    ):
        text = question[0] if len(offsets) <= limit else question[0][: offsets[limit - 1][1]]
        asked.append(Question(id="", question=text, context=question[1], answers=None))
    rows = make_features(asked, tokenizer, predictor.max_length, max(1, predictor.max_length // 3))
    logits = compute(predictor, rows, _read_spans)
    windows: list[list[int]] = [[] for _ in questions]
    for number, row in enumerate(rows):
        windows[row["question"]].append(number)
    results = []
    for own, (_, context) in zip(windows, questions, strict=True):
        starts, ends = ([logits[number][part].numpy() for number in own] for part in (0, 1))
        found = best_answers(
            [rows[number] for number in own], starts, ends, context, n_best, max_answer_length
        )
        results.append(_describe_answers(*found, null_threshold))
    return results


def _read_spans(outputs: Any, rows: list[Row]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(outputs.start_logits.float().cpu(), outputs.end_logits.float().cpu(), strict=True))


def _describe_answers(
    answers: list[Answer], null_score: float, null_threshold: float | None
) -> dict[str, Any]:
    shares = softmax([one.score for one in answers])
    ranked = [
        {"text": one.text, "start": one.start, "end": one.end, "score": share}
        for one, share in zip(answers, shares, strict=True)
    ]
    difference = null_score - answers[0].score if answers else None
    is_none = difference is None or (null_threshold is not None and difference > null_threshold)
    best = {"text": "", "start": 0, "end": 0, "score": 0.0} if is_none else ranked[0]
    return best | {"n_best": ranked, "no_answer_score": difference}
