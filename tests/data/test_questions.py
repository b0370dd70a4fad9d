"""Layouts of question files, against hand-worked questions."""

import json
from pathlib import Path
from typing import Any

import pytest

from hfbert.data.questions import Question, locate_answers, read_questions

CONTEXT = "茶很热。Tea is hot. Tea steams."
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {"id": "q1", "question": "What?", "answers": [{"text": "Tea", "answer_start": 4}]},
                        {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True},
                        {"id": "q3", "question": "How?"},
                    ],
                }
            ],
        }
    ],
}
CMRC = [
    {
        "context_id": "T",
        "context_text": CONTEXT,
        "qas": [{"query_id": "T_0", "query_text": "什么热？", "answers": ["茶", "茶很热"]}],
    }
]
ROW = {"id": "r", "question": "What?", "context": CONTEXT, "answers": {"text": ["hot"], "answer_start": [11]}}


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(text, encoding="utf-8")
    return path


def test_squad_tells_answers_from_no_answer_and_from_not_told(tmp_path: Path) -> None:
    first, second, third = read_questions(write(tmp_path, "a.json", SQUAD))
    assert (first.id, first.question, first.context) == ("q1", "What?", CONTEXT)
    assert (first.answers, first.starts) == (("Tea",), (4,))
    assert second.answers == () and third.answers is None
    assert first.place.endswith("a.json, question q1")


def test_cmrcs_own_layout_and_rows_of_the_hubs_form_are_read(tmp_path: Path) -> None:
    (one,) = read_questions(write(tmp_path, "a.json", CMRC))
    assert one.answers == ("茶", "茶很热") and one.starts == (-1, -1)
    located, moved = locate_answers([one])
    assert located[0].starts == (0, 0) and moved == 2
    for name, content in (("a.jsonl", json.dumps(ROW) + "\n"), ("b.json", [ROW])):
        (row,) = read_questions(write(tmp_path, name, content))
        assert (row.id, row.answers, row.starts) == ("r", ("hot",), (11,))


@pytest.mark.parametrize(
    ("start", "place", "moved"),
    [
        (4, 4, 0),
        (16, 16, 0),
        (5, 4, 1),
        (3, 4, 1),
        (15, 16, 1),
        (9, 4, 1),
        (11, 16, 1),
        (-1, 4, 1),
        (999, 16, 1),
    ],
)
def test_an_answer_is_moved_to_the_nearest_place_where_it_stands(start: int, place: int, moved: int) -> None:
    question = Question(id="1", question="?", context=CONTEXT, answers=("Tea",), starts=(start,))
    (located,), count = locate_answers([question])
    assert located.starts == (place,) and count == moved
    assert CONTEXT[place : place + 3] == "Tea"


@pytest.mark.parametrize("text", ["coffee", ""])
def test_an_answer_that_is_not_in_its_context_is_named(text: str) -> None:
    question = Question(
        id="1", question="?", context=CONTEXT, answers=(text,), starts=(4,), place="a.json, 1"
    )
    with pytest.raises(ValueError, match=rf"a\.json, 1: the answer '{text}' is not in its context"):
        locate_answers([question])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n{', r"a\.json, line 2: not JSON"),
        ({"rows": []}, "neither SQuAD's layout with a list `data`, nor a list of rows"),
        ({"data": []}, "holds no questions"),
        ({"data": [{"title": "t"}]}, "no 'paragraphs' among title"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "no 'context' among qas"),
        ({"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "7"}]}]}]}, "question 7: no 'question'"),
        (
            {"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "7", "question": 3}]}]}]},
            "question 7: the question is '3' and not a text",
        ),
        ([{"question": "a"}], "no column 'context'"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_questions(write(tmp_path, "a.json", content))
    assert "\n" not in str(caught.value)
