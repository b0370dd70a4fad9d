"""Column files in every layout, against hand-worked sentences; what is written is what was read and more."""

from pathlib import Path
from typing import Any

import pytest

from hfbert.data.columns import read_columns, read_sentences, rows_to_sentences, write_columns
from hfbert.data.tables import Table

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

Peter NNP B-NP B-PER
"""
RESUME = "高 B-NAME\n勇 E-NAME\n： O\n\n男 O\n"
WEIBO = "科0\tO\n技1\tO\n全0\tB-PER.NAM\n"
WNUT = "@paul\tO\nIt\tO\n\u3000\tO\nNew\tB-location\nYork\tI-location\n\n\nbye\tO\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "a.conll"
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("text", "words", "tags"),
    [
        (CONLL, [[], ["EU", "rejects"], [], ["Peter"]], [[], ["B-ORG", "O"], [], ["B-PER"]]),
        (RESUME, [["高", "勇", "："], ["男"]], [["B-NAME", "E-NAME", "O"], ["O"]]),
        (WEIBO, [["科", "技", "全"]], [["O", "O", "B-PER.NAM"]]),
        (
            WNUT,
            [["@paul", "It", "\u3000", "New", "York"], ["bye"]],
            [["O", "O", "O", "B-location", "I-location"], ["O"]],
        ),
        ("O\tB\nB-PER\tAnna\nO\tsings\n", None, None),
        ("B-PER Anna\nO sings\n", [["Anna", "sings"]], [["B-PER", "O"]]),
        ("Anna\nsings\n\nyes\n", [["Anna", "sings"], ["yes"]], [[], []]),
        ("tea OBJ\nis O\n", [["tea", "is"]], [["OBJ", "O"]]),
        ("a\u2028b\tO\n\u200b\tO\n", [["a\u2028b", "\u200b"]], [["O", "O"]]),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_words_and_tags_are_found_in_every_layout(
    tmp_path: Path, text: str, words: Any, tags: Any, ending: str
) -> None:
    if words is None:
        words, tags = [["B", "Anna", "sings"]], [["O", "B-PER", "O"]]
    sentences = read_columns(write(tmp_path, text.replace("\n", ending)))
    assert [list(one.words) for one in sentences] == words
    assert [list(one.tags) for one in sentences] == tags


def test_columns_can_be_named_from_either_end(tmp_path: Path) -> None:
    path = write(tmp_path, "1 Anna B-NP NNP B-PER x\n2 sings B-VP VB O y\n")
    (sentence,) = read_columns(path, word_column=1, tag_column=-2)
    assert sentence.words == ("Anna", "sings") and sentence.tags == ("B-PER", "O")
    (sentence,) = read_columns(path, word_column=1, tag_column=2)
    assert sentence.tags == ("B-NP", "B-VP")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("Anna\tO\nsings\n", {}, r"a\.conll, line 2: 1 columns where there were 2 before"),
        ("Anna O\n\nNew York O\n", {}, r"a\.conll, line 3: 3 columns"),
        ("", {}, r"a\.conll: holds no words"),
        ("\n \n", {}, r"a\.conll: holds no words"),
        ("Anna singer\nBob baker\n", {}, r"no column holds tags.*--tag_column"),
        ("Anna O\n", {"tag_column": 2}, r"--tag_column 2: .* has 2 columns"),
        ("Anna O\n", {"word_column": -3}, r"--word_column -3"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_line(
    tmp_path: Path, text: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_columns(write(tmp_path, text), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [CONLL, RESUME, WEIBO, WNUT.replace("\n\n\n", "\n\n")])
def test_a_written_file_is_the_one_that_was_read_and_a_column_more(tmp_path: Path, text: str) -> None:
    sentences = read_columns(write(tmp_path, text))
    write_columns(tmp_path / "out.conll", sentences, [["B-X"] * len(one.words) for one in sentences])
    before = [line for line in text.split("\n") if line]
    after = [line for line in (tmp_path / "out.conll").read_text(encoding="utf-8").split("\n") if line]
    mark = "\t" if "\t" in text else " "
    assert after == [line + mark + ("O" if "DOCSTART" in line else "B-X") for line in before]
    again = read_columns(tmp_path / "out.conll")
    assert [len(one.words) for one in again] == [len(one.words) for one in sentences]


def test_rows_of_the_hubs_form_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"tokens": ["安", "娜"], "ner_tags": ["B-PER", "I-PER"]}\n{"tokens": []}\n'
    )
    first, second = read_sentences(tmp_path / "a.jsonl")
    assert first.words == ("安", "娜") and first.tags == ("B-PER", "I-PER")
    assert first.place_of(1).endswith("a.jsonl, line 1, word 2")
    assert second.words == () == second.tags


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "row 1: 'tags' needs one name of a tag for each of 2 tokens"),
        ({"tokens": ["a"], "tags": [3]}, "needs one name of a tag"),
        ({"tokens": "a b", "tags": ["O", "O"]}, "'tokens' is no list of words"),
        ({"words": ["a"]}, "no column 'tokens', only words"),
    ],
)
def test_rows_that_do_not_fit_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_to_sentences(Table("data", [row]))


def test_the_place_of_a_word_is_its_line(tmp_path: Path) -> None:
    sentences = read_columns(write(tmp_path, CONLL))
    assert sentences[1].place_of(1).endswith("a.conll, line 4")
    assert sentences[3].place_of(0).endswith("a.conll, line 8")
