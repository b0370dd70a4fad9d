"""Turn tables of texts and labels into features for a sentence classifier.

{"text": "Tea is hot.", "pair": "It steams.", "label": "yes"}
    ->  {"input_ids": [CLS] tea is hot . [SEP] it steams . [SEP], "token_type_ids": [0, 0 ... 1], "labels": 1}
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from hfbert.data.tables import Table
from hfbert.data.tokenizer import encode_plain

TEXT_COLUMNS = ("text", "sentence", "sentence1", "text_a", "premise", "question1", "question")
PAIR_COLUMNS = ("pair", "sentence2", "text_b", "hypothesis", "question2")
LABEL_COLUMNS = ("label", "labels", "gold_label", "score")


@dataclass(frozen=True)
class Columns:
    """Names of the columns that hold the text, the second text if there is one, and the label."""

    text: str
    pair: str | None
    label: str | None


def find_columns(table: Table, text: str | None, pair: str | None, label: str | None) -> Columns:
    """The columns that are named, else the first with a usual name; ValueError says which ones there are."""
    for column, flag in ((text, "--text_column"), (pair, "--pair_column"), (label, "--label_column")):
        if column is not None:
            table.require(column, f"choose one with {flag}")
    there = table.columns
    if text is None:
        text = next((name for name in TEXT_COLUMNS if name in there), None)
        if text is None:
            table.require("text", "choose one with --text_column")
        pair = pair or next((name for name in PAIR_COLUMNS if name in there), None)
    assert text is not None
    return Columns(text, pair, label or next((name for name in LABEL_COLUMNS if name in there), None))


@dataclass(frozen=True)
class Labels:
    """What a label may be: one of `names`, or any number if there are none (regression)."""

    names: tuple[str, ...]

    @property
    def is_regression(self) -> bool:
        return not self.names

    def read(self, value: Any, place: str) -> int | float:
        """The number of a label, or the score it is; ValueError naming the place for any other."""
        if self.is_regression:
            score = _to_number(value)
            if score is None:
                raise ValueError(f"{place}: label {value!r} is no number, and this task is scored")
            return score
        name = label_name(value)
        if name in self.names:
            return self.names.index(name)
        known = ", ".join(self.names[:8])
        raise ValueError(f"{place}: label {value!r} is not one of the labels of training ({known})")


def label_name(value: Any) -> str:
    """1, 1.0 and "1" are one label: what a file of numbers holds depends on who wrote it."""
    number = None if isinstance(value, str | bool) else _to_number(value)
    return str(int(number)) if number is not None and number.is_integer() else str(value).strip()


def _to_number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def is_missing(value: Any, is_score: bool = False) -> bool:
    """Whether a cell says that there is no label: empty, NaN or, but for scores, -1 as on the Hub."""
    is_blank = value is None or value != value or (isinstance(value, str) and not value.strip())
    return is_blank or (not is_score and value in (-1, "-1"))


def is_labelled(table: Table, columns: Columns) -> bool:
    """Whether any row has a label."""
    return columns.label is not None and any(not is_missing(row.get(columns.label)) for row in table.rows)


def learn_labels(table: Table, columns: Columns, is_regression: bool | None) -> Labels:
    """The labels of a training table: its names, sorted, or none for scores.

    Told by itself, scores are numbers of which one has a fraction: 3.5, but not 1.0. ValueError for labels
    that are missing or all the same.
    """
    if columns.label is None:
        table.require("label", "choose one with --label_column")
    values = [row.get(columns.label) for row in table.rows]  # type: ignore[arg-type]
    numbers = [_to_number(value) for value in values]
    if is_regression is None:
        is_regression = None not in numbers and any(number % 1 for number in numbers if number)
    for row, value in enumerate(values):
        if is_missing(value, is_regression):
            raise ValueError(f"{table.place(row)}: label {value!r} means none, and training needs one")
    if is_regression:
        return Labels(())
    names = sorted({label_name(value) for value in values}, key=_natural)
    if len(names) < 2:
        raise ValueError(f"{table.name}: every row has the label {names[0]!r}; there is nothing to learn")
    return Labels(tuple(names))


def _natural(name: str) -> tuple[bool, float, str]:
    number = _to_number(name)
    return (number is None, number or 0.0, name)


def read_labels(table: Table, columns: Columns, labels: Labels) -> list[int | float]:
    """The label of every row; ValueError for the first that is missing or unknown."""
    found = []
    for number, row in enumerate(table.rows):
        value = row.get(columns.label)  # type: ignore[arg-type]
        if is_missing(value, labels.is_regression):
            raise ValueError(f"{table.place(number)}: label {value!r} means none, where all rows need one")
        found.append(labels.read(value, table.place(number)))
    return found


def read_texts(table: Table, column: str, may_be_empty: bool) -> list[str]:
    """The texts of a column; ValueError for a cell that holds none, unless it may, as in a test set."""
    texts = []
    for number, row in enumerate(table.rows):
        value = row.get(column)
        if (value is None or (isinstance(value, str) and not value.strip())) and not may_be_empty:
            raise ValueError(f"{table.place(number)}: {column!r} is empty; fill it or delete the row")
        if value is not None and not isinstance(value, str | int | float):
            raise ValueError(f"{table.place(number)}: {column!r} holds {str(value)[:40]!r} and not a text")
        texts.append("" if value is None else str(value))
    return texts


def make_features(
    table: Table,
    columns: Columns,
    labels: Sequence[int | float] | None,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    may_be_empty: bool = False,
) -> list[dict[str, Any]]:
    """[CLS] text [SEP] or [CLS] text [SEP] pair [SEP], cut to `max_length` from the longer one's end."""
    texts = encode_plain(read_texts(table, columns.text, may_be_empty), tokenizer)
    pairs = (
        None
        if columns.pair is None
        else encode_plain(read_texts(table, columns.pair, may_be_empty), tokenizer)
    )
    rows = []
    for number, text in enumerate(texts):
        row = make_sequence(text, None if pairs is None else pairs[number], tokenizer, max_length)
        rows.append(row | ({} if labels is None else {"labels": labels[number]}))
    return rows


def make_sequence(
    text: list[int], pair: list[int] | None, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> dict[str, Any]:
    """Special tokens and segments (Devlin et al. 2018, figure 2) round one or two texts of token ids."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    if pair is None:
        input_ids = [cls, *text[: max_length - 2], sep]
        return {"input_ids": input_ids, "token_type_ids": [0] * len(input_ids)}
    first, second = cut_pair(len(text), len(pair), max_length - 3)
    input_ids = [cls, *text[:first], sep, *pair[:second], sep]
    return {"input_ids": input_ids, "token_type_ids": [0] * (first + 2) + [1] * (second + 1)}


def cut_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """What is left of two lengths when the longer gives way until both fit, as the stock tokenizer cuts.

    Of an odd room the one that was longer keeps a token more, the second one if neither was.
    """
    short, long = sorted((first, second))
    long = min(long, max(short, room - short))
    if short + long > room:
        short, long = room // 2, room - room // 2
    return (long, short) if first > second else (short, long)


def order_labels(names: Sequence[str], id2label: Mapping[int, str] | None) -> tuple[str, ...]:
    """The names in the order of a checkpoint that knows the same ones, in any case; else as they are."""
    theirs = [] if id2label is None else [str(id2label[number]) for number in sorted(id2label)]
    own = {name.lower(): name for name in names}
    if len(theirs) == len(names) and {name.lower() for name in theirs} == set(own):
        return tuple(own[name.lower()] for name in theirs)
    return tuple(names)
