"""Turn files of questions, in any of their layouts, into questions on a context with answers in it.

{"context": "Tea is hot.", "qas": [{"id": 1, "question": "What is hot?", "answers": [{"text": "Tea", ...}]}]}
    ->  Question(id="1", question="What is hot?", context="Tea is hot.", answers=("Tea",), starts=(0,))
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hfbert.data.tables import Table, read_lines, read_table


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with its answers: none of them if it cannot be answered, None where nobody says."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...] | None
    starts: tuple[int, ...] = ()  # characters of the context before each answer
    place: str = ""  # for messages


def read_questions(path: str | Path) -> list[Question]:
    """SQuAD 1.1 and 2.0, CMRC 2018 (in SQuAD's layout, or its own), as .json; the Hub's form, as .jsonl.

    Answers without a place start at -1. ValueError names the file and the question for a missing key.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() in (".jsonl", ".parquet"):
        return rows_to_questions(read_table(path))
    text = "\n".join(line for _, line in read_lines(path))
    try:
        content = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ValueError(f"{path}, line {line}: not JSON ({str(error)[:80]})") from None
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        paragraphs = [part for article in content["data"] for part in _get(article, "paragraphs", str(path))]
        questions = list(_read_paragraphs(paragraphs, path, "context", "id", "question"))
    elif isinstance(content, list) and content and isinstance(content[0], dict) and "qas" in content[0]:
        questions = list(_read_paragraphs(content, path, "context_text", "query_id", "query_text"))
    elif isinstance(content, list):
        return rows_to_questions(Table(str(path), content))
    else:
        raise ValueError(f"{path}: neither SQuAD's layout with a list `data`, nor a list of rows")
    if not questions:
        raise ValueError(f"{path}: holds no questions; give a file with at least one")
    return questions


def _get(part: Any, key: str, place: str) -> Any:
    if not isinstance(part, dict) or key not in part:
        there = ", ".join(map(str, part))[:80] if isinstance(part, dict) else f"a {type(part).__name__}"
        raise ValueError(f"{place}: no {key!r} among {there}")
    return part[key]


def _read_paragraphs(
    paragraphs: Sequence[Any], path: Path, context_key: str, id_key: str, question_key: str
) -> Iterator[Question]:
    for paragraph in paragraphs:
        context = _get(paragraph, context_key, str(path))
        for part in _get(paragraph, "qas", str(path)):
            number = str(_get(part, id_key, str(path)))
            place = f"{path}, question {number}"
            given = [] if part.get("is_impossible") else part.get("answers")
            answers, starts = _read_answers(given, place)
            yield _make(number, _get(part, question_key, place), context, answers, starts, place)


def _read_answers(given: Any, place: str) -> tuple[list[str] | None, list[int]]:
    """Texts and places of [{"text", "answer_start"}], or of texts alone: -1 where there is none."""
    if given is None:
        return None, []
    if isinstance(given, dict):  # the Hub's form
        texts, starts = _get(given, "text", place), given.get("answer_start")
        return list(texts), list(starts or [-1] * len(texts))
    texts = [answer if isinstance(answer, str) else _get(answer, "text", place) for answer in given]
    return texts, [-1 if isinstance(answer, str) else answer.get("answer_start", -1) for answer in given]


def _make(
    number: str, question: Any, context: Any, answers: list[str] | None, starts: list[int], place: str
) -> Question:
    for name, text in (
        ("question", question),
        ("context", context),
        *(("answer", one) for one in answers or []),
    ):
        if not isinstance(text, str):
            raise ValueError(f"{place}: the {name} is {str(text)[:40]!r} and not a text")
    return Question(
        id=number,
        question=question,
        context=context,
        answers=None if answers is None else tuple(answers),
        starts=tuple(starts),
        place=place,
    )


def rows_to_questions(table: Table) -> list[Question]:
    """Questions of the Hub's form: columns "question", "context" and, where known, "id" and "answers"."""
    for column in ("question", "context"):
        table.require(column, "rename the columns to question, context and answers")
    questions = []
    for number, row in enumerate(table.rows):
        place = table.place(number)
        answers, starts = _read_answers(row.get("answers"), place)
        name = str(row.get("id", number))
        questions.append(_make(name, row.get("question"), row.get("context"), answers, starts, place))
    return questions


def locate_answers(questions: Sequence[Question]) -> tuple[list[Question], int]:
    """Questions whose answers stand where they say they do, and how many had to be moved for that.

    An answer that stands elsewhere is moved to the nearest place. ValueError for one that is not in its
    context at all.
    """
    moved = 0
    located = []
    for question in questions:
        starts = []
        for text, start in zip(question.answers or (), question.starts, strict=True):
            place = _locate(text, start, question.context)
            if place is None:
                raise ValueError(
                    f"{question.place}: the answer {text[:40]!r} is not in its context; mend or delete it"
                )
            starts.append(place)
            moved += place != start
        located.append(replace(question, starts=tuple(starts)))
    return located, moved


def _locate(text: str, start: int, context: str) -> int | None:
    """Where the text stands in its context, nearest to where it is said to; the first place for -1."""
    if not text:
        return None
    near = max(start, 0)
    places = (context.rfind(text, 0, near + len(text)), context.find(text, near))
    return min((place for place in places if place >= 0), key=lambda place: abs(place - near), default=None)
