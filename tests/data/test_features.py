"""Padding of features, against transformers' own collators."""

from typing import Any

import pytest
import torch
from transformers import BertTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from hfbert.data.features import FeatureCollator, FeatureRows

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", *"深度学习"]


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def feature(length: int, **extra: Any) -> dict[str, Any]:
    return {"input_ids": list(range(5, 5 + length)), "token_type_ids": [0, 1, 1, 1, 1][:length]} | extra


@pytest.mark.parametrize("labels", [[1, 0, 2], [0.5, -1.0, 3.0]])
def test_rows_with_one_label_are_padded_as_transformers_does(
    tokenizer: BertTokenizer, labels: list[float]
) -> None:
    rows = [feature(length, labels=label) for length, label in zip((3, 5, 1), labels, strict=True)]
    own, stock = FeatureCollator(0)(rows), DataCollatorWithPadding(tokenizer)(rows)
    assert own.keys() == stock.keys()
    for name, value in own.items():
        assert torch.equal(value, stock[name]) and value.dtype == stock[name].dtype, name


def test_labels_of_tokens_are_padded_as_transformers_does(tokenizer: BertTokenizer) -> None:
    rows = [feature(length, labels=list(range(length))) for length in (3, 5, 1)]
    own, stock = FeatureCollator(0)(rows), DataCollatorForTokenClassification(tokenizer)(rows)
    assert all(torch.equal(own[name], stock[name]) for name in stock)


def test_choices_are_padded_alike_and_their_padding_is_told() -> None:
    rows = [
        {"input_ids": [[5, 6], [5]], "token_type_ids": [[0, 1], [0]], "labels": 1},
        {"input_ids": [[5], [6, 7, 8]], "token_type_ids": [[0], [0, 0, 1]], "labels": 0},
    ]
    batch = FeatureCollator(0)(rows)
    assert batch["input_ids"].tolist() == [[[5, 6, 0], [5, 0, 0]], [[5, 0, 0], [6, 7, 8]]]
    assert batch["attention_mask"].tolist() == [[[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 1, 1]]]
    assert batch["token_type_ids"].tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]]]
    assert batch["labels"].tolist() == [1, 0]


def test_positions_of_answers_stay_and_other_columns_do_not() -> None:
    rows = [feature(3, start_positions=1, end_positions=2, sentence=7, place="a, line 3") for _ in range(2)]
    batch = FeatureCollator(9)(rows)
    assert set(batch) == {
        *("input_ids", "token_type_ids", "attention_mask"),
        "start_positions",
        "end_positions",
    }
    assert batch["end_positions"].tolist() == [2, 2]


def test_padding_is_the_tokenizers_token() -> None:
    assert FeatureCollator(9)([feature(1), feature(3)])["input_ids"].tolist() == [[5, 9, 9], [5, 6, 7]]


def test_rows_are_the_same_in_every_epoch() -> None:
    rows = FeatureRows([feature(1), feature(2)])
    rows.set_epoch(3)
    assert len(rows) == 2 and rows[1] == feature(2)
