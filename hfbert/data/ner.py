"""Turn sentences of words and tags into windows of token ids with labels, and predictions back into tags.

Sentence(words=("Anna", "sings"), tags=("B-PER", "O"))
->  {"input_ids": [CLS] an ##na sings [SEP], "labels": [-100, 1, -100, 0, -100], "words": [(1, 0), (3, 1)]}
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from hfbert.data.columns import Sentence
from hfbert.data.tags import OUTSIDE, detect_scheme, label_names, repair, split_tag, to_iob2
from hfbert.data.tokenizer import encode_plain

IGNORED_LABEL = -100


def convert_tags(sentences: Sequence[Sentence]) -> tuple[list[Sentence], str]:
    """All tags in IOB2, and the scheme they had."""
    scheme = detect_scheme(sentence.tags for sentence in sentences)
    converted = [replace(one, tags=tuple(to_iob2(one.tags, scheme))) for one in sentences]
    return converted, scheme


def learn_names(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """The labels of a training set in IOB2; ValueError for words without tags, or without any entity."""
    for sentence in sentences:
        if len(sentence.tags) != len(sentence.words):
            raise ValueError(f"{sentence.place_of(0)}: no tags, and training needs one for each word")
    names = label_names(sentence.tags for sentence in sentences)
    if len(names) == 1:
        raise ValueError(f"{sentences[0].place}: every tag is O; there is nothing to learn")
    return names


def make_features(
    sentences: Sequence[Sentence],
    names: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    stride: int,
    label_all_pieces: bool = False,
) -> list[dict[str, Any]]:
    """Windows of every sentence: `input_ids`, `token_type_ids`, `labels`, and which words they speak for.

    A long sentence gives windows that share up to `stride` tokens; `words` are the (position, word) of the
    first pieces of the words whose prediction is read from this window, each word of a sentence in exactly
    one. They carry the label, other tokens -100; with `label_all_pieces` later pieces of a word have its I-.
    A word without pieces, such as a lone joiner, is an [UNK]. Sentences without tags have no labels.
    ValueError for a tag that is not among `names`, and for a stride that leaves no room.
    """
    capacity = max_length - 2
    if not 0 <= stride < capacity:
        raise ValueError(f"--stride {stride} is not from 0 up to {capacity - 1}, --max_length less 3")
    pieces = _encode_words(sentences, tokenizer)
    numbers = {name: number for number, name in enumerate(names)}
    features = []
    for index, sentence in enumerate(sentences):
        labels = _read_labels(sentence, numbers)
        lists = [pieces[word][:capacity] for word in sentence.words]
        for window, owned in make_windows([len(ids) for ids in lists], capacity, stride):
            ids = [number for word in window for number in lists[word]]
            places = _first_places(window, lists)
            feature = {
                "input_ids": [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id],
                "token_type_ids": [0] * (len(ids) + 2),
                "sentence": index,
                "words": [(places[word], word) for word in owned],
            }
            if labels:
                feature["labels"] = _mark(feature, lists, labels, names, label_all_pieces)
            features.append(feature)
    return features


def _encode_words(sentences: Sequence[Sentence], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """The pieces of each different word."""
    words = list({word: None for sentence in sentences for word in sentence.words})
    return {
        word: ids or [tokenizer.unk_token_id]
        for word, ids in zip(words, encode_plain(words, tokenizer), strict=True)
    }


def _read_labels(sentence: Sentence, numbers: dict[str, int]) -> list[int]:
    for word, tag in enumerate(sentence.tags):
        if tag not in numbers:
            raise ValueError(f"{sentence.place_of(word)}: tag {tag!r} never occurs in the training set")
    return [numbers[tag] for tag in sentence.tags]


def make_windows(lengths: Sequence[int], capacity: int, stride: int) -> list[tuple[range, list[int]]]:
    """Runs of whole words that fit, and the words that each run speaks for: those it sees best."""
    windows: list[range] = []
    start = 0
    while start < len(lengths):
        end, room = start, capacity
        while end < len(lengths) and lengths[end] <= room:
            room -= lengths[end]
            end += 1
        windows.append(range(start, end))
        if end == len(lengths):
            break
        start = _step_back(lengths, start, end, capacity, stride)
    owners = [_find_owner(windows, word, lengths) for word in range(len(lengths))]
    return [
        (window, [word for word in window if owners[word] == number]) for number, window in enumerate(windows)
    ]


def _step_back(lengths: Sequence[int], start: int, end: int, capacity: int, stride: int) -> int:
    """Where the next window starts: up to `stride` tokens before `end`, if a new word fits in then."""
    room = min(stride, capacity - lengths[end])
    place = end
    while place - 1 > start and lengths[place - 1] <= room:
        place -= 1
        room -= lengths[place]
    return place


def _find_owner(windows: Sequence[range], word: int, lengths: Sequence[int]) -> int:
    """The window with the most tokens on the poorer side of a word (Devlin et al.'s maximal context)."""

    def context(number: int) -> int:
        window = windows[number]
        return min(sum(lengths[window.start : word]), sum(lengths[word + 1 : window.stop]))

    return max((number for number, window in enumerate(windows) if word in window), key=context)


def _first_places(window: range, lists: Sequence[Sequence[int]]) -> dict[int, int]:
    """Word -> position of its first piece, after [CLS]."""
    ends = np.cumsum([0, *(len(lists[word]) for word in window)]) + 1
    return {word: int(place) for word, place in zip(window, ends, strict=False)}


def _mark(
    feature: dict[str, Any],
    lists: Sequence[Sequence[int]],
    labels: Sequence[int],
    names: Sequence[str],
    label_all_pieces: bool,
) -> list[int]:
    marked = [IGNORED_LABEL] * len(feature["input_ids"])
    for place, word in feature["words"]:
        marked[place] = labels[word]
        if label_all_pieces:
            kind = split_tag(names[labels[word]])[1]
            later = names.index(f"I-{kind}") if kind else labels[word]
            marked[place + 1 : place + len(lists[word])] = [later] * (len(lists[word]) - 1)
    return marked


def collect_tags(
    features: Sequence[dict[str, Any]],
    predictions: Sequence[np.ndarray],
    sentences: Sequence[Sentence],
    names: Sequence[str],
) -> list[list[str]]:
    """The tag of every word of every sentence, from the predicted label of each token, (S,) a window."""
    tags = [[OUTSIDE] * len(sentence.words) for sentence in sentences]
    for feature, labels in zip(features, predictions, strict=True):
        for place, word in feature["words"]:
            tags[feature["sentence"]][word] = names[int(labels[place])]
    return [repair(one) for one in tags]
