"""Texts and labels to features, against transformers' tokenizer and hand-worked labels."""

import random
from typing import Any

import pytest
from transformers import BertTokenizer

from hfbert.data.classification import (
    Columns,
    Labels,
    cut_pair,
    find_columns,
    is_labelled,
    is_missing,
    label_name,
    learn_labels,
    make_features,
    order_labels,
    read_labels,
)
from hfbert.data.tables import Table

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefg",
    "##b",
    "##c",
    *"深度学习",
    ".",
    "null",
    "na",
]
TEXTS = ["a b c", "abc d", "深度学习", "", "a" * 3 + " null", "NA . 学"]


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def table_of(*labels: Any, **columns: list[Any]) -> Table:
    rows = [{"text": f"row {number}", "label": label} for number, label in enumerate(labels)]
    return Table("a.csv", rows, [number + 2 for number in range(len(rows))])


TEXT = Columns("text", None, "label")


@pytest.mark.parametrize("max_length", [3, 5, 6, 64])
def test_one_text_is_encoded_and_cut_as_the_tokenizer_does(tokenizer: BertTokenizer, max_length: int) -> None:
    table = Table("a", [{"text": text} for text in TEXTS])
    own = make_features(table, Columns("text", None, None), None, tokenizer, max_length, may_be_empty=True)
    stock = tokenizer(TEXTS, truncation=True, max_length=max_length)
    assert [row["input_ids"] for row in own] == stock["input_ids"]
    assert [row["token_type_ids"] for row in own] == stock["token_type_ids"]


@pytest.mark.parametrize("max_length", [5, 6, 8, 9, 64])
def test_pairs_are_encoded_and_cut_as_the_tokenizer_does(tokenizer: BertTokenizer, max_length: int) -> None:
    firsts = [first for first in TEXTS for _ in TEXTS]
    seconds = TEXTS * len(TEXTS)
    table = Table("a", [{"x": x, "y": y} for x, y in zip(firsts, seconds, strict=True)])
    own = make_features(table, Columns("x", "y", None), None, tokenizer, max_length, may_be_empty=True)
    stock = tokenizer(firsts, seconds, truncation="longest_first", max_length=max_length)
    assert [row["input_ids"] for row in own] == stock["input_ids"]
    assert [row["token_type_ids"] for row in own] == stock["token_type_ids"]


def test_a_cut_pair_fills_the_room_and_no_side_loses_more_than_it_must() -> None:
    draw = random.Random(0)
    for _ in range(2000):
        first, second, room = (draw.randint(0, 40) for _ in range(3))
        left, right = cut_pair(first, second, room)
        assert 0 <= left <= first and 0 <= right <= second
        assert left + right == min(first + second, room)
        assert left == first or left >= right - 1  # whoever gave way is no shorter than the other
        assert right == second or right >= left - 1


def test_a_typed_special_token_is_text(tokenizer: BertTokenizer) -> None:
    table = Table("a", [{"text": "a [SEP] b [CLS] [MASK]"}])
    (row,) = make_features(table, Columns("text", None, None), None, tokenizer, 64)
    assert [row["input_ids"].count(special) for special in (2, 3, 4)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["no", "yes", "no"], ("no", "yes")),
        ([1, 0, 2, 10], ("0", "1", "2", "10")),
        (["1", "0"], ("0", "1")),
        ([1.0, 0.0, 1.0], ("0", "1")),  # whole numbers are classes, whoever wrote them
        (["1.0", "0.0"], ("0.0", "1.0")),
        ([True, False], ("False", "True")),
        (["差", "好"], ("好", "差")),
        ([" yes ", "no"], ("no", "yes")),
    ],
)
def test_labels_are_learned_sorted(labels: list[Any], names: tuple[str, ...]) -> None:
    found = learn_labels(table_of(*labels), TEXT, None)
    assert found.names == names
    assert not found.is_regression


@pytest.mark.parametrize("scores", [[3.8, 1.0], ["3.8", "1"], [-1, 0.5, 1.0]])
def test_numbers_with_a_fraction_are_scores(scores: list[Any]) -> None:
    found = learn_labels(table_of(*scores), TEXT, None)
    assert found.is_regression
    assert read_labels(table_of(*scores), TEXT, found) == [float(score) for score in scores]


def test_whole_numbers_are_scores_when_the_user_says_so() -> None:
    assert learn_labels(table_of(1, 2, 3), TEXT, True).is_regression
    assert learn_labels(table_of(1.5, 2, 3), TEXT, False).names == ("1.5", "2", "3")


@pytest.mark.parametrize("missing", [None, "", "  ", -1, "-1", float("nan")])
def test_training_rows_without_a_label_are_refused_with_their_line(missing: Any) -> None:
    with pytest.raises(ValueError, match=r"a\.csv, line 3: label .* means none, and training needs one"):
        learn_labels(table_of("yes", missing, "no"), TEXT, None)
    assert is_missing(missing)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            Labels(("no", "yes")),
            r"a\.csv, line 3: label 'maybe' is not one of the labels of training \(no, yes\)",
        ),
        (Labels(()), r"a\.csv, line 2: label 'no' is no number"),
    ],
)
def test_a_label_that_training_never_saw_is_refused_with_its_line(labels: Labels, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_labels(table_of("no", "maybe"), TEXT, labels)


@pytest.mark.parametrize("score", ["3,8", "n/a", "inf", "五"])
def test_what_only_looks_like_a_score_is_refused(score: Any) -> None:
    with pytest.raises(ValueError, match="is no number"):
        read_labels(table_of(score), TEXT, Labels(()))


def test_one_label_for_all_is_nothing_to_learn() -> None:
    with pytest.raises(ValueError, match="every row has the label 'yes'"):
        learn_labels(table_of("yes", "yes"), TEXT, None)


def test_test_sets_may_have_no_labels() -> None:
    assert not is_labelled(table_of(-1, None, ""), TEXT)
    assert not is_labelled(table_of(1), Columns("text", None, None))
    assert is_labelled(table_of(-1, 0), TEXT)


def test_an_empty_text_is_refused_but_in_a_test_set(tokenizer: BertTokenizer) -> None:
    table = Table("a.csv", [{"text": "a"}, {"text": " "}, {"text": None}], [2, 3, 4])
    columns = Columns("text", None, None)
    with pytest.raises(ValueError, match=r"a\.csv, line 3: 'text' is empty"):
        make_features(table, columns, None, tokenizer, 8)
    assert len(make_features(table, columns, None, tokenizer, 8, may_be_empty=True)) == 3
    with pytest.raises(ValueError, match="not a text"):
        make_features(Table("a.csv", [{"text": ["a"]}]), columns, None, tokenizer, 8)


def test_columns_are_found_by_usual_names_or_told_what_there_is() -> None:
    pair = Table("a.csv", [{"sentence1": "a", "sentence2": "b", "label": 1}])
    assert find_columns(pair, None, None, None) == Columns("sentence1", "sentence2", "label")
    own = Table("a.csv", [{"评论": "好", "星级": "5"}])
    assert find_columns(own, "评论", None, "星级") == Columns("评论", None, "星级")
    with pytest.raises(ValueError, match=r"only 评论, 星级: choose one with --text_column"):
        find_columns(own, None, None, None)
    with pytest.raises(
        ValueError, match=r"no column 'stars', only 评论, 星级: choose one with --label_column"
    ):
        find_columns(own, "评论", None, "stars")


@pytest.mark.parametrize(("value", "name"), [(1, "1"), (1.0, "1"), ("1", "1"), (" x", "x"), (True, "True")])
def test_a_number_has_one_name(value: Any, name: str) -> None:
    assert label_name(value) == name


def test_the_order_of_labels_is_the_checkpoints_when_it_knows_the_same_ones() -> None:
    names = ("entailment", "neutral", "contradiction")
    theirs = {0: "CONTRADICTION", 1: "ENTAILMENT", 2: "NEUTRAL"}
    assert order_labels(names, theirs) == ("contradiction", "entailment", "neutral")
    assert order_labels(names, None) == names
    assert order_labels(names, {0: "a", 1: "b", 2: "c"}) == names
    assert order_labels(names, {0: "entailment", 1: "neutral"}) == names
