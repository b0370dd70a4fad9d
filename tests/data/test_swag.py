"""Four choices to four sequences, against transformers' tokenizer."""

from typing import Any

import pytest
from transformers import BertTokenizer

from hfbert.data.swag import is_labelled, make_choices
from hfbert.data.tables import Table

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", *"他开门走了"]


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def row(**changes: Any) -> dict[str, Any]:
    endings = {"ending0": "c d", "ending1": "e", "ending2": "走了", "ending3": "f g a b"}
    return {"sent1": "a b 他开门", "sent2": "g", "label": "2"} | endings | changes


@pytest.mark.parametrize("max_length", [8, 10, 32])
def test_each_choice_is_the_pair_that_the_tokenizer_makes(tokenizer: BertTokenizer, max_length: int) -> None:
    one = row()
    (feature,) = make_choices(Table("a.csv", [one]), tokenizer, max_length)
    firsts = [one["sent1"]] * 4
    seconds = [f"{one['sent2']} {one[f'ending{number}']}" for number in range(4)]
    stock = tokenizer(firsts, seconds, truncation="longest_first", max_length=max_length)
    assert feature["input_ids"] == stock["input_ids"]
    assert feature["token_type_ids"] == stock["token_type_ids"]
    assert feature["labels"] == 2


def test_a_row_without_a_beginning_has_its_ending_alone(tokenizer: BertTokenizer) -> None:
    for sent2 in ("", None):
        (feature,) = make_choices(Table("a", [row(sent2=sent2)]), tokenizer, 32)
        assert feature["input_ids"][1] == tokenizer("a b 他开门", "e")["input_ids"]


def test_rows_to_predict_need_no_label(tokenizer: BertTokenizer) -> None:
    table = Table("a", [{name: value for name, value in row().items() if name != "label"}])
    assert "labels" not in make_choices(table, tokenizer, 32, has_labels=False)[0]
    assert not is_labelled(table) and not is_labelled(Table("a", [row(label=-1)]))
    assert is_labelled(Table("a", [row()]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ending1": ""}, r"a\.csv, line 2: 'ending1' is empty"),
        ({"ending3": None}, r"a\.csv, line 2: 'ending3' is empty"),
        ({"label": 4}, r"a\.csv, line 2: label '4' is not 0, 1, 2 or 3"),
        ({"label": -1}, r"a\.csv, line 2: label '-1' is not"),
        ({"label": "b"}, r"a\.csv, line 2: label 'b' is not"),
    ],
)
def test_a_row_that_is_no_choice_is_refused_with_its_line(
    tokenizer: BertTokenizer, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_choices(Table("a.csv", [row(**changes)], [2]), tokenizer, 32)


def test_a_missing_column_is_told_with_those_there_are(tokenizer: BertTokenizer) -> None:
    with pytest.raises(ValueError, match=r"no column 'sent1', only text, label"):
        make_choices(Table("a.csv", [{"text": "a", "label": 0}]), tokenizer, 32)
