"""Labels from documentation, on a small library written here; every sentence bears its docstring's number."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hfbert.data import pydoc, pydoc_labels
from hfbert.data.pydoc_answers import answer_rows, find_parameters
from hfbert.data.pydoc_labels import (
    Parts,
    entity_rows,
    find_sentences,
    is_new,
    next_rows,
    package_rows,
    pair_rows,
)

VERBS = ("Returns", "Computes", "Reads", "Writes", "Draws", "Sorts", "Counts", "Checks", "Moves", "Joins")
THINGS = {"alpha": ("the table", "the lines", "the axis"), "be-ta": ("the words", "the nodes", "the graph")}
ALL = [package_rows, pair_rows, next_rows, entity_rows, answer_rows]
NUM_FUNCTIONS = 150

GOOGLE = """Args:
        size (int, optional): How many of {number} to take from {thing}, defaults to {number}.
        keep (`bool`, *optional*, defaults to `False`): Whether to keep {thing} of {number}."""
NUMPY = """Parameters
    ----------
    size : int, default={number}
        How many of {number} to take from {thing}.
    path : str or Path
        Where the file of {thing} of {number} is."""
SPHINX = """:param str path: Where the file of {thing} of {number} is.
    :param size: How many of {number} to take from {thing} (default: {number}).
    :type size: int"""


def function(number: int, package: str) -> str:
    """A documented function whose sentences all bear its number."""
    verb, thing = VERBS[number % 10], THINGS[package][number // 10 % 3]
    first = f"{verb} {thing} of number {number} when ``{package}.run_{number}`` was called with ``None``."
    again = " again" * (number % 7)
    second = f"It is for {number} that BE_TA and is_alpha_set have to wait for {thing}{again}"
    third = f"There is one more of {thing} for the {number} of them."
    parameters = (GOOGLE, NUMPY, SPHINX)[number % 3].format(number=number, thing=thing)
    return f'def run_{number}():\n    """{first}\n    {second}.\n\n    {third}\n\n    {parameters}\n    """\n'


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two packages of 150 documented functions each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pydoc, "_installed_dependencies", lambda: [])
    sources = []
    for package in THINGS:
        path = tmp_path / f"{package}.py"
        path.write_text("\n".join(function(number, package) for number in range(NUM_FUNCTIONS)))
        sources.append((package, package, path))
    monkeypatch.setattr(pydoc, "_source_files", lambda distributions: iter(sources))
    yield


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[tuple[str, str]]]:
    """The (token, tag) pairs of all sentences of a docstring."""
    monkeypatch.setattr(pydoc_labels, "read_docstrings", lambda: [{"docstring": docstrings[0], "name": "f"}])
    docstrings: list[str] = []

    def read(docstring: str) -> list[tuple[str, str]]:
        docstrings[:] = [docstring]
        rows = [row for part in entity_rows().values() for row in part]
        return [pair for row in rows for pair in zip(row["tokens"], row["tags"], strict=True)]

    return read


def every(parts: Parts) -> list[dict[str, Any]]:
    return [row for part in parts.values() for row in part]


def texts_of(rows: list[dict[str, Any]]) -> set[str]:
    """The texts of rows, but not labels and questions, which are the same in many."""
    others = ("id", "label", "question", "sent2", "answers", "tokens", "tags")
    found = {text for row in rows for name, text in row.items() if name not in others}
    return found or {" ".join(row["tokens"]) for row in rows}


def source_of(text: str) -> tuple[str, str]:
    """The package and the number of the docstring that a text is of."""
    number = re.search(r"\d+", text)
    (package,) = {name for name, things in THINGS.items() if any(thing in text for thing in things)}
    assert number
    return package, number[0]


@pytest.mark.parametrize("rows", ALL)
def test_a_tenth_is_held_out_the_same_each_time_and_no_text_is_in_both(library: None, rows: Any) -> None:
    parts: Parts = rows()
    assert parts == rows()
    total = len(every(parts))
    assert total >= 200 and 0.03 < len(parts["validation"]) / total < 0.2
    assert not texts_of(parts["train"]) & texts_of(parts["validation"])


@pytest.mark.parametrize("rows", ALL)
def test_all_rows_of_a_docstring_are_in_the_same_part(library: None, rows: Any) -> None:
    parts: Parts = rows()
    train, validation = ({source_of(text) for text in texts_of(found)} for found in parts.values())
    assert train and validation and not train & validation


@pytest.mark.parametrize("rows", ALL)
def test_no_more_rows_than_asked_are_in_a_part(library: None, rows: Any) -> None:
    # The four endings of a choice are of one package, and up to three rows of each are left over.
    least = 6 if rows is next_rows else 12
    assert all(least <= len(found) <= 12 for found in rows(max_rows=12).values())


def test_a_package_is_named_in_no_text_in_any_case_or_longer_word(library: None) -> None:
    rows = every(package_rows())
    assert Counter(row["label"] for row in rows) == {"alpha": NUM_FUNCTIONS, "be-ta": NUM_FUNCTIONS}
    assert not any(re.search("(?i)alpha|be.?ta", row["sentence"]) for row in rows)
    assert all("it.run_" in row["sentence"] for row in rows)


def test_a_large_package_is_cut_to_the_limit(library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydoc_labels, "MAX_PACKAGE_ROWS", 40)
    assert Counter(row["label"] for row in every(package_rows())) == {"alpha": 40, "be-ta": 40}


def test_sentences_of_one_docstring_are_the_same_and_each_is_in_one_row(library: None) -> None:
    for rows in pair_rows().values():
        for row in rows:
            first, second = source_of(row["sentence1"]), source_of(row["sentence2"])
            assert first[0] == second[0] and (first == second) == (row["label"] == "same")
        labels = Counter(row["label"] for row in rows)
        assert abs(labels["same"] - labels["different"]) <= len(THINGS)
        sentences = Counter(row[name] for row in rows for name in ("sentence1", "sentence2"))
        assert set(sentences.values()) == {1}  # so that none can say its label alone


def test_the_next_sentence_is_among_four_that_are_right_once_each(library: None) -> None:
    for rows in next_rows().values():
        right = [row[f"ending{row['label']}"] for row in rows]
        assert [source_of(row["sent1"]) for row in rows] == [source_of(ending) for ending in right]
        # Each is right as often as any other, so neither its words nor its length tell anything.
        assert set(Counter(right).values()) == {1}
        shown = Counter(row[f"ending{place}"] for row in rows for place in range(4))
        assert set(shown.values()) == {4} and set(shown) == set(right)
        assert all(
            row["sent2"] == "" and len({row[f"ending{place}"] for place in range(4)}) == 4 for row in rows
        )
    labels = Counter(row["label"] for row in every(next_rows()))
    assert set(labels) == {0, 1, 2, 3} and max(labels.values()) < sum(labels.values()) / 2


def test_the_wrong_endings_are_of_nearly_the_same_length(library: None) -> None:
    spans = []
    for row in next_rows()["train"]:
        lengths = [len(row[f"ending{place}"]) for place in range(4)]
        spans.append(max(lengths) - min(lengths))
    assert sum(spans) / len(spans) < 3  # they differ by up to 40 characters in the library


def test_code_terms_are_tagged_by_their_form_and_their_marks_are_gone(document: Any) -> None:
    pairs = document(
        "This is ``None`` if the ``a.b_c()`` of it is not in ``--out-file FILE``, or is, e.g., 2.5 "
        "of the ``'x y'``'s well-known one for it."
    )
    words = (
        "This is None if the a . b_c ( ) of it is not in - - out-file FILE , or is , e.g. , 2.5 "
        "of the ' x y ' ' s well-known one for it ."
    )
    assert [token for token, _ in pairs] == words.split()
    assert [pair for pair in pairs if pair[1] != "O"] == [
        ("None", "B-VALUE"),
        *[("a", "B-NAME"), (".", "I-NAME"), ("b_c", "I-NAME"), ("(", "I-NAME"), (")", "I-NAME")],
        *[("-", "B-CODE"), ("-", "I-CODE"), ("out-file", "I-CODE"), ("FILE", "I-CODE")],
        *[("'", "B-VALUE"), ("x", "I-VALUE"), ("y", "I-VALUE"), ("'", "I-VALUE")],
    ]


def test_terms_stay_with_their_sentence_and_neighbours_stay_two(document: Any) -> None:
    pairs = document(
        "This is for the case of a_b that is not marked, but ``c`` is. "
        "Then the two of ``coef_`` ``d`` are the same."
    )
    assert "a_b" not in dict(pairs)  # a name that its author forgot to mark would be a wrong answer
    assert [pair for pair in pairs if pair[1] != "O"] == [("coef_", "B-NAME"), ("d", "B-NAME")]


def test_a_paragraph_with_other_backticks_is_left_out_and_sentences_without_terms_are_kept(
    document: Any,
) -> None:
    kept = "Then it is one of the two."
    pairs = document(f"This is what it has of ``x`` for you.\n\nThis is what `y` has of ``z``.\n\n{kept}")
    assert {token for token, tag in pairs if tag != "O"} == {"x"}
    assert "z" not in dict(pairs) and "two" in dict(pairs)


@pytest.mark.parametrize(
    "text",
    ["", "``", "````", "`` ``", "``\ud800``", "\0 ``a``", "``[SEP]``", "\ue000 ``a``", "😀``a``‏مرحبا``茶``"],
)
def test_any_text_is_read_without_harm(document: Any, text: str) -> None:
    for docstring in (text, f"It is for {text} that this is not in the way of a reader.", f"x (int): {text}"):
        assert not any("`" in token or "\ue000" in token for token, tag in document(docstring) if tag != "O")
        assert all(one.name for one in find_parameters(f"{docstring}\n{text}:param {text}: a\n"))


def test_every_answer_stands_where_it_is_said_to_and_is_that_of_the_parameter(library: None) -> None:
    rows = every(answer_rows())
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        (text,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start : start + len(text)] == text
        asked = re.fullmatch(r"What (type is|is the default of) (\w+)\?", row["question"])
        assert asked
        _, number = source_of(row["context"])
        types = {
            "size": "int",
            "keep": "bool",
            "path": "str or Path" if "or Path" in row["context"] else "str",
        }
        assert text == (types if asked[1] == "type is" else {"size": number, "keep": "False"})[asked[2]]
    assert len({row["question"] for row in rows}) == 5


@pytest.mark.parametrize(
    ("docstring", "parameters"),
    [
        (
            "Args:\n    dim (int): The axis.\n        Goes on. Default: ``-1``\n"
            "    *out ([`~a.B`], optional): It.\n",
            [("dim", "int", "-1"), ("out", "a.B", None)],
        ),
        (
            "Parameters\n----------\nshape : ndarray of shape (n,), default='x'\n    The shape.\n\n"
            "kind : {'a', 'b'}, default b_c\n    It.\n\nSee Also\n--------\nlook : Here and\n    there.",
            [("shape", "ndarray", "'x'"), ("kind", None, None)],
        ),
        (
            ":param int a: The first, defaults to zero.\n:param b: The second (default 0.5)\n  of it.\n"
            ":type b: float or None",
            [("a", "int", "zero"), ("b", "float or None", "0.5")],
        ),
        (
            "参数:\n    大小 (int, optional): 大小。Defaults to 3.\n    名 (str): 名字。",
            [("大小", "int", "3"), ("名", "str", None)],
        ),
        ("Args:\n    x (dict[str, int]): Defaults to the one that is set.", [("x", "dict[str, int]", None)]),
        ("Args:\n    x (float (default = 1e-10)): Of 1+0j.", [("x", "float", "1e-10")]),
        ("Args:\n    x (Any): Default is 1+0j.\n    y: Defaults to 1 / x.", [("x", "Any", None)]),
        ("Args:\n    dtype (dtype): Defaults to torch.float32 if there is none.", [("dtype", "dtype", None)]),
        ("No parameters: at all.\n\nvalue: is not one.\n\nsize (int):\n", []),
    ],
)
def test_types_and_defaults_are_found_in_the_styles_of_google_numpy_and_sphinx(
    docstring: str, parameters: list[tuple[str, str | None, str | None]]
) -> None:
    found = [
        (one.name, *(span and one.text[slice(*span)] for span in (one.type, one.default)))
        for one in find_parameters(docstring)
    ]
    assert found == parameters


def test_a_dotted_name_does_not_end_a_sentence() -> None:
    text = "See torch.Tensor for it. Then there is base.Locator. 茶是热的。雪很冷。"
    assert find_sentences(text) == [
        "See torch.Tensor for it.",
        "Then there is base.Locator.",
        "茶是热的。",
        "雪很冷。",
    ]


def test_texts_that_differ_in_case_and_punctuation_alone_are_the_same() -> None:
    seen: set[str] = set()
    assert [is_new(text, seen) for text in ("The tea.", "the: TEA", "The tea 2.", "茶。", "茶")] == [
        *(True, False, True),
        *(True, False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("rows", ALL)
def test_the_installed_documentation_gives_thousands_of_rows_of_every_kind(rows: Any) -> None:
    parts: Parts = rows()
    assert len(parts["train"]) > 5000 and len(parts["validation"]) > 500
    assert not texts_of(parts["train"]) & texts_of(parts["validation"])
