"""Windows and answers of questions, against brute force, transformers' own windows and the exact text."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer

from hfbert.data.questions import Question
from hfbert.data.squad import best_answers, find_starts, find_tokens, make_features, softmax

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefg",
    "##b",
    "##c",
    *"深度学习很热",
    "?",
    ".",
    "20",
]
QUESTION = Question(id="1", question="a b?", context="abc d 深度学习。 efg 20年 a b c", answers=None)


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def ask(context: str, question: str = "a b?", **changes: Any) -> Question:
    return replace(QUESTION, context=context, question=question, **changes)


@pytest.mark.parametrize("doc_stride", [*range(1, 20), 60, 100, 121, 126, 127])
def test_windows_cover_the_whole_context_for_every_stride(tokenizer: BertTokenizer, doc_stride: int) -> None:
    draw = random.Random(0)
    question = ask(" ".join(draw.choice("abcdefg") for _ in range(157)), "a b c?")
    windows = make_features([question], tokenizer, 128, doc_stride)
    covered = {place for window in windows for place in window["offsets"]}
    assert len(covered) == 157
    assert max(len(window["input_ids"]) for window in windows) == 128
    assert len(windows) <= 157
    owned = [place for window in windows for place in np.array(window["offsets"])[window["is_best"]].tolist()]
    assert sorted(map(tuple, owned)) == sorted(covered)  # each token is seen best by one window


def test_windows_hold_what_the_stock_tokenizers_windows_hold(tokenizer: BertTokenizer) -> None:
    context = " ".join("abcdefg"[number % 7] for number in range(50))
    own = make_features([ask(context)], tokenizer, 20, 9)
    stock = tokenizer(
        "a b?",
        context,
        truncation="only_second",
        max_length=20,
        stride=14 - 9,  # stock counts the overlap, the paper what a window moves on: 14 tokens have room
        return_overflowing_tokens=True,
    )
    assert [window["input_ids"] for window in own[:-1]] == stock["input_ids"][:-1]
    assert [window["token_type_ids"] for window in own[:-1]] == stock["token_type_ids"][:-1]
    # the last one is full here: more context, and no token more to compute than the batch is wide
    assert len(own) == len(stock["input_ids"]) and len(own[-1]["input_ids"]) == 20


def test_the_last_window_ends_with_the_context() -> None:
    assert find_starts(10, 4, 3) == [0, 3, 6]
    assert find_starts(11, 4, 3) == [0, 3, 6, 7]
    assert find_starts(4, 4, 1) == [0] == find_starts(0, 4, 1)
    assert find_starts(9, 4, 100) == [0, 4, 5]


@pytest.mark.parametrize("doc_stride", [0, -1, 64, 65])
def test_a_stride_not_below_the_window_is_refused(tokenizer: BertTokenizer, doc_stride: int) -> None:
    with pytest.raises(ValueError, match=f"--doc_stride {doc_stride} is not from 1 to below --max_length 64"):
        make_features([QUESTION], tokenizer, 64, doc_stride)


def test_a_question_longer_than_the_window_is_named(tokenizer: BertTokenizer) -> None:
    long = ask("a", "a " * 30, place="a.json, question 1")
    with pytest.raises(ValueError, match=r"a\.json, question 1: a question of 30 tokens leaves no room"):
        make_features([long], tokenizer, 32, 8)


@pytest.mark.parametrize(
    ("answer", "covered"),
    [
        ("abc", "abc"),
        ("深度", "深度"),
        ("bc d", "abc d"),
        ("0年", "20年"),
        ("a b c", "a b c"),
        ("习。 e", "习。 efg"),
    ],
)
def test_the_marked_tokens_are_the_fewest_that_cover_the_answer(
    tokenizer: BertTokenizer, answer: str, covered: str
) -> None:
    start = QUESTION.context.rindex(answer)
    labelled = replace(QUESTION, answers=(answer,), starts=(start,))
    (window,) = make_features([labelled], tokenizer, 64, 32, has_labels=True)
    places = [place - window["first"] for place in (window["start_positions"], window["end_positions"])]
    (first, _), (_, last) = (window["offsets"][place] for place in places)
    found = QUESTION.context[first:last]
    assert answer in found and found in (covered, answer)


def test_every_answer_lies_whole_in_a_window_or_is_marked_in_none(tokenizer: BertTokenizer) -> None:
    context = " ".join("abcdefg"[number % 7] for number in range(60))
    for start in range(0, 100, 2):
        labelled = ask(context, answers=(context[start : start + 9],), starts=(start,))
        windows = make_features([labelled], tokenizer, 24, 6, has_labels=True)
        marked = [window for window in windows if window["start_positions"]]
        assert marked
        for window in marked:
            first, last = (window[name] - window["first"] for name in ("start_positions", "end_positions"))
            assert window["offsets"][first][0] == start and window["offsets"][last][1] == start + 9
        assert all(window["end_positions"] == 0 for window in windows if window not in marked)


def test_a_question_without_answer_points_at_cls(tokenizer: BertTokenizer) -> None:
    (window,) = make_features([replace(QUESTION, answers=())], tokenizer, 64, 32, has_labels=True)
    assert window["start_positions"] == window["end_positions"] == 0


def brute_force(
    windows: list[dict[str, Any]], starts: list[np.ndarray], ends: list[np.ndarray], reach: int
) -> dict[tuple[int, int], float]:
    """Every start with every end of every window, straight from the definition."""
    found: dict[tuple[int, int], float] = {}
    for window, start, end in zip(windows, starts, ends, strict=True):
        for first in range(len(window["offsets"])):
            for last in range(first, min(first + reach, len(window["offsets"]))):
                if window["is_best"][first]:
                    place = window["offsets"][first][0], window["offsets"][last][1]
                    score = float(start[window["first"] + first] + end[window["first"] + last])
                    found[place] = max(score, found.get(place, -np.inf))
    return found


@pytest.mark.parametrize("reach", [1, 3, 30])
@pytest.mark.parametrize("n_best", [1, 5, 1000])
def test_the_best_answers_are_those_of_brute_force(tokenizer: BertTokenizer, n_best: int, reach: int) -> None:
    draw = np.random.default_rng(reach)
    question = ask("abc d 深度学习。 efg 20年 a b c 💩💩💩 👨‍👩‍👧 g [SEP] " * 3)
    windows = make_features([question], tokenizer, 24, 8)
    logits = [[draw.normal(size=30).astype(np.float32) for _ in windows] for _ in range(2)]
    answers, null_score = best_answers(windows, *logits, question.context, n_best, reach)
    expected = brute_force(windows, *logits, reach)
    wanted = sorted(expected.values(), reverse=True)[:n_best]
    np.testing.assert_allclose([answer.score for answer in answers], wanted, rtol=1e-6)
    assert len({(answer.start, answer.end) for answer in answers}) == len(answers)
    assert null_score == min(float(start[0] + end[0]) for start, end in zip(*logits, strict=True))
    for answer in answers:
        assert answer.text == question.context[answer.start : answer.end] and answer.text
        assert expected[answer.start, answer.end] == pytest.approx(answer.score)


@pytest.mark.parametrize("context", ["", " ", "\u200b", "\x00"])
def test_a_context_without_tokens_has_no_answers(tokenizer: BertTokenizer, context: str) -> None:
    windows = make_features([ask(context)], tokenizer, 24, 8)
    logits = [np.zeros(24, dtype=np.float32)] * len(windows)
    assert best_answers(windows, logits, logits, context) == ([], 0.0)


@pytest.mark.parametrize("run", ["💩💩💩", "👨‍👩‍👧", "📷🤏", "שלום"])
def test_an_answer_of_unknown_characters_is_their_own_text(tokenizer: BertTokenizer, run: str) -> None:
    question = ask(f"a {run} b", answers=(run,), starts=(2,))
    (window,) = make_features([question], tokenizer, 24, 8, has_labels=True)
    size = len(window["input_ids"])
    starts, ends = np.zeros(size), np.zeros(size)
    starts[window["start_positions"]] = ends[window["end_positions"]] = 5
    answers, _ = best_answers([window], [starts], [ends], question.context)
    assert answers[0].text == run


def test_a_window_that_cuts_the_answer_does_not_hold_it() -> None:
    offsets = [(4, 7), (8, 9), (10, 14)]
    assert find_tokens(offsets, 4, 9) == (0, 1)
    assert find_tokens(offsets, 8, 12) == (1, 2)
    assert find_tokens(offsets, 2, 7) is None and find_tokens(offsets, 10, 15) is None
    assert find_tokens([], 0, 1) is None


def test_softmax_gives_shares_whatever_the_size_of_the_scores() -> None:
    assert softmax([1e4, 1e4]) == [0.5, 0.5]
    assert softmax([0.0, np.log(3)]) == pytest.approx([0.25, 0.75])
    assert softmax([]) == []
