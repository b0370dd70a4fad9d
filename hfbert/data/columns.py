"""Turn column files of words and tags into sentences, and sentences with predictions into such a file.

"Anna\tB-PER\nsings\tO\n"  ->  Sentence(words=("Anna", "sings"), tags=("B-PER", "O"))
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hfbert.data.tables import Table, read_lines, read_table
from hfbert.data.tags import OUTSIDE, looks_like_tag

_DOCUMENT_START = "-DOCSTART-"
_SPACES = re.compile(" +")
_NUMBERED = re.compile(r"\D[0-9]")  # a character and its place in a word, as in the Weibo corpus


@dataclass(frozen=True)
class Sentence:
    """Words, their tags if they have some, and the lines they came from.

    A line that starts a document has no words and is a sentence of its own, so that all can be written back.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[str, ...]
    place: str  # of the first word
    first_line: int | None = None  # of the file; none for rows of a data set

    def place_of(self, word: int) -> str:
        if self.first_line is None:
            return f"{self.place}, word {word + 1}"
        return f"{self.place}, line {self.first_line + word}"


def read_sentences(
    path: str | Path, word_column: int | None = None, tag_column: int | None = None
) -> list[Sentence]:
    """A column file or, as .jsonl, .json or .parquet, rows of "tokens" and "ner_tags"."""
    path = Path(path).expanduser()
    if path.suffix.lower() in (".jsonl", ".json", ".parquet"):
        return rows_to_sentences(read_table(path))
    return read_columns(path, word_column, tag_column)


def read_columns(
    path: str | Path, word_column: int | None = None, tag_column: int | None = None
) -> list[Sentence]:
    """A word and its tag on each line, a blank line after each sentence, any other columns beside.

    Columns end at tabs, or at spaces where the file has no tab, and are counted from 0, or from the end with
    -1. By itself the tag column is the last one in which every cell is a tag, the word column the first other
    one; a file of one column has no tags. ValueError names the line that has another number of columns.
    """
    path = Path(path)
    numbered = list(read_lines(path))
    cells = _split_lines(numbered, path)
    if not cells:
        raise ValueError(f"{path}: holds no words; give a file with a word and its tag on each line")
    rows = [row for row in cells.values() if row[0] != _DOCUMENT_START]
    word, tag = _find_columns(rows, word_column, tag_column, path)
    is_numbered = all(_NUMBERED.fullmatch(row[word]) for row in rows)
    sentences: list[Sentence] = []
    for block in _blocks(numbered, cells):
        first = block[0][0]
        lines = tuple(line for _, line in block)
        rows = [cells[number] for number, _ in block]
        if rows[0][0] == _DOCUMENT_START:
            sentences.append(Sentence((), (), lines, str(path), first))
            continue
        words = tuple(row[word][: -1 if is_numbered else None] for row in rows)
        tags = () if tag is None else tuple(row[tag] for row in rows)
        sentences.append(Sentence(words, tags, lines, str(path), first))
    return sentences


def _split_lines(numbered: Sequence[tuple[int, str]], path: Path) -> dict[int, list[str]]:
    """Line number -> cells, for lines that are not blank."""
    filled = [(number, line) for number, line in numbered if line.strip(" \t")]
    has_tabs = any("\t" in line for _, line in filled)
    cells = {
        number: line.split("\t") if has_tabs else _SPACES.split(line.rstrip(" ")) for number, line in filled
    }
    widths = {number: len(row) for number, row in cells.items() if row[0] != _DOCUMENT_START}
    width = next(iter(widths.values()), 0)
    for number, found in widths.items():
        if found != width:
            raise ValueError(
                f"{path}, line {number}: {found} columns where there were {width} before; "
                "mend the line, or end the sentence before it with a blank line"
            )
    return cells


def _find_columns(
    rows: Sequence[Sequence[str]], word: int | None, tag: int | None, path: Path
) -> tuple[int, int | None]:
    width = len(rows[0]) if rows else 1
    for flag, column in (("--word_column", word), ("--tag_column", tag)):
        if column is not None and not -width <= column < width:
            raise ValueError(f"{flag} {column}: {path} has {width} columns, 0 to {width - 1}")
    if tag is None and width > 1:
        of_tags = [column for column in range(width) if all(looks_like_tag(row[column]) for row in rows)]
        has_outside = any(row[-1] == OUTSIDE for row in rows)
        if not of_tags and not has_outside:
            raise ValueError(f"{path}: no column holds tags such as B-PER and O; name one with --tag_column")
        tag = of_tags[-1] if of_tags else width - 1
    if tag is not None:
        tag %= width
    if word is None:
        word = next(column for column in range(width) if column != tag or width == 1)
    return word % width, tag


def _blocks(
    numbered: Sequence[tuple[int, str]], cells: dict[int, list[str]]
) -> Iterable[list[tuple[int, str]]]:
    """Lines of one sentence after another; a document's start is a block of its own."""
    block: list[tuple[int, str]] = []
    for number, line in numbered:
        is_start = number in cells and cells[number][0] == _DOCUMENT_START
        if block and (number not in cells or is_start):
            yield block
            block = []
        if is_start:
            yield [(number, line)]
        elif number in cells:
            block.append((number, line))
    if block:
        yield block


def rows_to_sentences(table: Table) -> list[Sentence]:
    """Sentences of the Hub's form: columns "tokens" and "ner_tags" or "tags"; ValueError names the row."""
    table.require("tokens", "rename the column of the words to tokens")
    column = next((name for name in ("ner_tags", "tags") if name in table.columns), None)
    sentences = []
    for number, row in enumerate(table.rows):
        words, tags = row["tokens"], row.get(column) if column else None
        place = table.place(number)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{place}: 'tokens' is no list of words")
        if tags and (len(tags) != len(words) or not all(isinstance(tag, str) for tag in tags)):
            raise ValueError(f"{place}: {column!r} needs one name of a tag for each of {len(words)} tokens")
        sentences.append(Sentence(tuple(words), tuple(tags or ()), tuple(words), place))
    return sentences


def write_columns(path: Path, sentences: Sequence[Sentence], tags: Sequence[Sequence[str]]) -> None:
    """The lines that were read with a tag added to each as the last column, whole or not at all."""
    separator = "\t" if any("\t" in line for one in sentences for line in one.lines) else " "
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for sentence, own in zip(sentences, tags, strict=True):
            for line, tag in zip(sentence.lines, own or [OUTSIDE] * len(sentence.lines), strict=True):
                file.write(f"{line}{separator}{tag}\n")
            file.write("\n")
    os.replace(partial, path)
