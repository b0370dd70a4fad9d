"""Turn a corpus - a file, a folder, a Hub dataset, the installed documentation - into documents.

"Tea is hot.\\nIt steams.\\n\\nSnow is cold.\\n"  ->  "Tea is hot.\\nIt steams.", "Snow is cold."
"""

import glob
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

from hfbert.data.pydoc import read_pydoc
from hfbert.data.sentences import is_blank

MAX_ERROR_LENGTH = 300

_TEXT_SUFFIXES = {"", ".txt", ".text", ".md"}
_ROW_SUFFIXES = {".jsonl", ".json", ".parquet"}
# A folder that holds one of these is a dataset: `datasets` knows its splits.
_DATASET_SUFFIXES = {*_ROW_SUFFIXES, ".csv", ".tsv", ".arrow"}
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_INSTALL = 'pip install "hfbert[train]"'


@dataclass(kw_only=True)
class CorpusOptions:
    """Which text to read and where one document ends.

    A file may be text, JSON lines (both also with .gz) or parquet. A folder is read file by file, sorted, if
    it holds text, and by `datasets` when it holds tables; hidden files are left out.
    """

    corpus: str = "pydoc"  # "pydoc", a file, a folder, a glob or the name of a dataset
    text_column: str = "text"  # the column of a dataset that holds the text
    dataset_config_name: str | None = None  # which configuration of a dataset
    dataset_split: str = "train"  # which split of a dataset
    streaming: bool = False  # read a dataset from the Hub without storing it
    document_separator: Literal["blank_line", "line", "file"] = "blank_line"  # what ends a text document
    max_documents: int | None = None  # read no more than this many

    def __post_init__(self) -> None:
        if self.document_separator not in _SPLITTERS:
            known = ", ".join(_SPLITTERS)
            raise ValueError(f"document_separator={self.document_separator!r} is not one of {known}")
        if self.max_documents is not None and self.max_documents < 1:
            raise ValueError(f"max_documents={self.max_documents}: give at least 1, or none for all")


def read_documents(options: CorpusOptions) -> Iterator[str]:
    """The documents in the corpus's own order, read as they are asked for.

    A corpus that does not exist is refused at once; bad lines, a wrong encoding or a corpus without any text
    when they are met. All are one-line ValueErrors that name the file, the line and the remedy.
    """
    return _not_empty(islice(_open(options), options.max_documents), options.corpus)


def describe_corpus(options: CorpusOptions) -> str:
    """What the corpus is: how it is read and, of files, their sizes and times, so that a change shows."""
    path = Path(os.path.expanduser(options.corpus))
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    else:
        files = [Path(name) for name in sorted(glob.glob(os.path.expanduser(options.corpus)))]
    facts = [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    text = "\n".join([repr(options), *facts])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _not_empty(documents: Iterable[str], corpus: str) -> Iterator[str]:
    has_text = False
    for document in documents:
        has_text = has_text or not is_blank(document)
        yield document
    if not has_text:
        raise _error(f"--corpus {corpus}", "holds no text", "name a file or folder with text in it")


def _open(options: CorpusOptions) -> Iterator[str]:
    """Decide what the name of the corpus means."""
    if options.corpus == "pydoc":
        return (document["text"] for document in read_pydoc())
    path = Path(os.path.expanduser(options.corpus))
    if not options.corpus:
        raise _error("--corpus", "is empty", 'name a file, a folder, a dataset or "pydoc"')
    if os.path.isdir(path):
        return _open_folder(path, options)
    if os.path.exists(path):  # unlike Path.exists, False where one may not look
        return _read_file(path, options)
    if any(character in options.corpus for character in "*?["):
        return _read_files(_matches(options.corpus), options)
    if _looks_like_path(options.corpus):
        raise _error(f"--corpus {options.corpus}", "does not exist", "check the path")
    return _read_dataset(options.corpus, options)


def _looks_like_path(name: str) -> bool:
    """Whether a name that is no existing path was meant as one: then there is no need to ask the network."""
    suffixes = (_TEXT_SUFFIXES - {""}) | _DATASET_SUFFIXES | {".gz"}
    return (
        _HUB_NAME.fullmatch(name) is None
        or Path(name).suffix.lower() in suffixes
        or ("/" in name and Path(name).parent.is_dir())
    )


def _matches(pattern: str) -> list[Path]:
    found = glob.glob(os.path.expanduser(pattern), recursive=True)
    files = sorted(path for path in map(Path, found) if path.is_file())
    if not files:
        raise _error(f"--corpus {pattern}", "matches no file", "check the pattern")
    return files


def _open_folder(folder: Path, options: CorpusOptions) -> Iterator[str]:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if any(_suffix(path) in _DATASET_SUFFIXES for path in files):
        return _read_dataset(str(folder), options)
    texts = [path for path in files if _suffix(path) in _TEXT_SUFFIXES]
    if not texts:
        known = " ".join(sorted((_TEXT_SUFFIXES - {""}) | _DATASET_SUFFIXES))
        raise _error(f"--corpus {folder}", "holds no text file", f"name a folder with files in {known}")
    return _read_files(texts, options)


def _suffix(path: Path) -> str:
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _read_files(paths: list[Path], options: CorpusOptions) -> Iterator[str]:
    for path in paths:
        yield from _read_file(path, options)


def _read_file(path: Path, options: CorpusOptions) -> Iterator[str]:
    if _suffix(path) in _DATASET_SUFFIXES - _ROW_SUFFIXES:
        raise _error(
            f"--corpus {path}", "is a table", "name the folder that holds it, or convert it to .jsonl"
        )
    try:
        if _suffix(path) == ".parquet":
            yield from _read_parquet(path, options.text_column)
        elif _suffix(path) in (".jsonl", ".json"):
            yield from _read_json_lines(path, options.text_column)
        else:
            with _open_text(path) as lines:
                yield from _SPLITTERS[options.document_separator](lines)
    except UnicodeDecodeError:
        raise _encoding_error(path) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _error(
            f"--corpus {path}", f"cannot be read: {reason}", "check the file and its permissions"
        ) from None


def _open_text(path: Path) -> IO[str]:
    """A file's lines, whatever ends them (\\n, \\r\\n, \\r), without a byte order mark."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=None)
    return path.open(encoding="utf-8-sig", newline=None)


def _split_at_blank_lines(lines: Iterable[str]) -> Iterator[str]:
    document: list[str] = []
    for line in lines:
        if not is_blank(line):
            document.append(line)
        elif document:
            yield "".join(document).rstrip("\n")
            document = []
    if document:
        yield "".join(document).rstrip("\n")


def _split_at_lines(lines: Iterable[str]) -> Iterator[str]:
    return (line.rstrip("\n") for line in lines if not is_blank(line))


def _keep_whole(lines: Iterable[str]) -> Iterator[str]:
    yield "".join(lines)


_SPLITTERS: dict[str, Callable[[Iterable[str]], Iterator[str]]] = {
    "blank_line": _split_at_blank_lines,
    "line": _split_at_lines,
    "file": _keep_whole,
}


def _read_json_lines(path: Path, text_column: str) -> Iterator[str]:
    with _open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if is_blank(line):
                continue
            where = f"--corpus {path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                problem = f"is not JSON ({error.msg}, column {error.colno})"
                raise _error(where, problem, "write one object a line") from None
            except RecursionError:
                raise _error(where, "is nested too deeply", "write one object a line") from None
            yield _text_of(row, text_column, where)


def _text_of(row: object, text_column: str, where: str) -> str:
    if not isinstance(row, dict):
        raise _error(where, "is not a JSON object", f'write one object a line: {{"{text_column}": "..."}}')
    if text_column not in row:
        raise _missing_column(where, text_column, row)
    text = row[text_column]
    if text is None:
        return ""  # counted among the empty documents, as a "" would be
    if not isinstance(text, str):
        remedy = "choose a column of strings with --text_column"
        raise _error(where, f"{text_column!r} is a {type(text).__name__}, not a string", remedy)
    return text


def _read_parquet(path: Path, text_column: str) -> Iterator[str]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise _error(f"--corpus {path}", "needs pyarrow to be read", _INSTALL) from None
    where = f"--corpus {path}"
    try:
        with parquet.ParquetFile(path) as file:
            if text_column not in file.schema_arrow.names:
                raise _missing_column(where, text_column, file.schema_arrow.names)
            for batch in file.iter_batches(columns=[text_column]):
                for row in batch.to_pylist():
                    yield _text_of(row, text_column, where)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise _error(where, f"is not a sound parquet file ({_reason(error)})", "write it again") from None


def _read_dataset(name: str, options: CorpusOptions) -> Iterator[str]:
    """The rows of whatever `datasets` can load; the name is looked up before the first row is asked for."""
    try:
        import datasets
    except ImportError:
        remedy = f"to read datasets by name, {_INSTALL}"
        raise _error(f"--corpus {name}", "is no file or folder here", remedy) from None
    where = f"--corpus {name}"
    try:
        rows: Any = datasets.load_dataset(
            name, options.dataset_config_name, split=options.dataset_split, streaming=options.streaming
        )
    except Exception as error:  # the library raises a dozen types; each means that there is nothing to read
        raise _error(where, f"cannot be loaded ({_reason(error)})", _dataset_remedy(error)) from None
    return _dataset_rows(rows, options.text_column, where)


def _dataset_rows(rows: Any, text_column: str, where: str) -> Iterator[str]:
    if rows.column_names is not None:
        if text_column not in rows.column_names:
            raise _missing_column(where, text_column, rows.column_names)
        rows = rows.select_columns([text_column])
    iterator = enumerate(rows, 1)
    while True:
        try:
            number, row = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise _error(
                where, f"stopped being readable ({_reason(error)})", _dataset_remedy(error)
            ) from None
        yield _text_of(row, text_column, f"{where}, row {number}")


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:140] if lines else type(error).__name__


def _dataset_remedy(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "check the spelling and the network, or name a file or folder"
    return "check the name, --dataset_config_name and --dataset_split"


def _missing_column(where: str, text_column: str, names: Iterable[object]) -> ValueError:
    there = ", ".join(str(name) for name in names)[:100]
    return _error(where, f"has no column {text_column!r}", f"choose one of these with --text_column: {there}")


def _encoding_error(path: Path) -> ValueError:
    """Find the first byte that is not UTF-8 by reading the file a second time."""
    offset = 0
    number = 1
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as lines:
        for line in lines:
            try:
                number += len(re.findall(r"\r\n?|\n", line.decode()))
            except UnicodeDecodeError as error:
                number += len(re.findall(rb"\r\n?|\n", line[: error.start]))
                offset += error.start
                break
            offset += len(line)
    return _error(
        f"--corpus {path}, line {number}, byte {offset + 1}",
        "is not UTF-8",
        "convert the file, e.g. iconv -f gb18030 -t utf-8",
    )


def _error(where: str, problem: str, remedy: str) -> ValueError:
    """One line of at most 300 characters; what is too long is cut at the front, where a path says least."""
    told = " ".join(f"{problem}; {remedy}".split())[: MAX_ERROR_LENGTH - 60]
    place = " ".join(where.split())
    room = MAX_ERROR_LENGTH - len(told) - len(": ")
    if len(place) > room:
        place = f"--corpus ...{place[len(place) - room + len('--corpus ...') :]}"
    return ValueError(f"{place}: {told}")
