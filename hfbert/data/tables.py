"""Turn a file or a data set of labelled rows into a table that knows where each row stands.

reviews.csv: "text,label\\ngood tea,1"  ->  [{"text": "good tea", "label": "1"}], at "reviews.csv, line 2"
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUFFIXES = (".tsv", ".txt", ".csv", ".jsonl", ".json", ".parquet")


@dataclass(kw_only=True)
class SourceOptions:
    """Where the labelled rows come from; names are those of transformers' example scripts."""

    dataset_name: str | None = None  # data set on the Hub, a folder, or "pydoc": installed documentation
    dataset_config_name: str | None = None  # which configuration of a data set
    train_file: str | None = None  # rows to train on
    validation_file: str | None = None  # rows to measure on
    test_file: str | None = None  # rows to predict, labelled or not
    validation_split_percentage: float = 10.0  # training rows measured on where nothing else is given
    max_train_samples: int | None = None  # train on the first so many only
    max_eval_samples: int | None = None  # measure on the first so many only
    max_predict_samples: int | None = None  # predict the first so many only
    max_length: int | None = None  # most positions of a row; none: as many as the model has

    def __post_init__(self) -> None:
        if not 0 < self.validation_split_percentage < 100:
            share = self.validation_split_percentage
            raise ValueError(f"validation_split_percentage={share} must be above 0 and below 100")
        for name in ("max_train_samples", "max_eval_samples", "max_predict_samples", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be 1 or more")

    def task(self, of_pydoc: str, of_hub: str) -> str:
        """What the rows are called in a table of results: by their data set or file, else as given."""
        if self.dataset_name == "pydoc":
            return of_pydoc
        if self.dataset_name is not None:
            return self.dataset_name.rstrip("/").rpartition("/")[2]
        path = Path(self.train_file or self.validation_file or of_hub).absolute()
        return path.parent.name if path.stem in ("train", "dev") else path.stem

    def limit(self, split: str) -> int | None:
        """The most rows of "train", "validation" or "test"."""
        if split == "train":
            return self.max_train_samples
        return self.max_eval_samples if split == "validation" else self.max_predict_samples


def hold_out(num_rows: int, percentage: float) -> tuple[list[int], list[int]]:
    """Numbers of rows to train on, and every n-th, `percentage` of all, to measure on."""
    step = max(2, round(100 / percentage))
    held_out = list(range(step - 1, num_rows, step))
    return [number for number in range(num_rows) if number % step != step - 1], held_out


@dataclass(frozen=True)
class Table:
    """Rows of one split; `lines` are those of the file, none for a data set without lines."""

    name: str
    rows: list[dict[str, Any]]
    lines: list[int] | None = None
    num_dropped: int = 0  # ragged lines that were left out

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> str:
        """Where a row stands, for messages: "train.tsv, line 7"."""
        return f"{self.name}, row {row + 1}" if self.lines is None else f"{self.name}, line {self.lines[row]}"

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows[:100] for name in row))

    def require(self, column: str, remedy: str) -> None:
        """ValueError that says which columns there are, and what to do, when one is not among them."""
        if column not in self.columns:
            there = ", ".join(map(str, self.columns))[:120] or "none"
            raise ValueError(f"{self.name} has no column {column!r}, only {there}: {remedy}")

    def head(self, limit: int | None) -> "Table":
        lines = None if self.lines is None else self.lines[:limit]
        return Table(self.name, self.rows[:limit], lines, self.num_dropped)

    def select(self, numbers: Iterable[int]) -> "Table":
        numbers = list(numbers)
        lines = None if self.lines is None else [self.lines[number] for number in numbers]
        return Table(self.name, [self.rows[number] for number in numbers], lines)


def read_table(path: str | Path, columns: list[str] | None = None, drops_ragged: bool = False) -> Table:
    """The rows of a .tsv, .txt (both tab separated, quotes are text), .csv, .json(l) or .parquet file.

    The first line of a tab- or comma-separated file names the columns unless `columns` does; [] numbers them,
    from "0". ValueError names the file and line of what is wrong: no such file, not UTF-8, JSON that does not
    parse, no rows, and ragged rows unless they are to be dropped.
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: not a kind of table that is read here; give {', '.join(SUFFIXES)}")
    if suffix == ".parquet":
        return from_dataset(path.name, _load_dataset("parquet", None, {"train": str(path)})["train"])
    numbered = list(read_lines(path))
    if suffix in (".jsonl", ".json"):
        table = _json_table(numbered, path)
    else:
        cells = _csv_cells(numbered, path) if suffix == ".csv" else _tab_cells(numbered)
        table = _cell_table(list(cells), columns, path, drops_ragged)
    if not table.rows:
        raise ValueError(f"{path}: holds no rows; give a file with at least one")
    return table


def read_dataset(name: str, config_name: str | None = None) -> dict[str, Table]:
    """The splits of a Hub data set, or of a folder that `datasets` reads; ValueError when there are none."""
    path = Path(name).expanduser()
    if path.is_file():
        raise ValueError(f"--dataset_name {name} is a file: give it with --train_file")
    splits = _load_dataset(str(path) if path.is_dir() else name, config_name, None)
    return {split: from_dataset(f"{name} ({split})", rows) for split, rows in splits.items()}


def from_dataset(name: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """A split of a data set; numbers of labels become their names where it knows them, -1 becomes None."""
    features = getattr(rows, "features", None) or {}
    namers = {column: namer for column, feature in features.items() if (namer := _namer(feature))}
    named = ({column: namers[column](row[column]) for column in namers} for row in rows)
    return Table(name, [dict(row) | names for row, names in zip(rows, named, strict=True)])


def _namer(feature: Any) -> Any:
    """What turns a value of a ClassLabel, or a list of them, into names; None for other features."""
    inner = getattr(feature, "feature", None)
    names = getattr(feature, "names", None) or getattr(inner, "names", None)
    if names is None:
        return None

    def to_name(value: Any) -> Any:
        if isinstance(value, list):
            return [to_name(one) for one in value]
        return None if value is None or value < 0 else names[value]

    return to_name


def _load_dataset(name: str, config_name: str | None, files: Any) -> Any:
    import datasets

    path = Path(name)
    try:
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            loaded = datasets.load_from_disk(name)
            return loaded if isinstance(loaded, dict) else {"train": loaded}
        return datasets.load_dataset(name, config_name, data_files=files)
    except Exception as error:  # the library raises a dozen types; each means that there is nothing to read
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:140]
        is_script = "scripts are no longer supported" in reason
        remedy = "download its files and give them with --train_file and --validation_file"
        remedy = remedy if is_script else "check --dataset_name, --dataset_config_name and the network"
        raise ValueError(f"--dataset_name {name} cannot be loaded ({reason}): {remedy}") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; only line feeds and carriage returns end one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; check the path") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: not UTF-8; convert it, e.g. iconv -f gb18030 -t utf-8"
        ) from None
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    yield from enumerate(lines if text else [], start=1)


def _tab_cells(numbered: list[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    for number, line in numbered:
        if line:
            yield number, line.split("\t")


def _csv_cells(numbered: list[tuple[int, str]], path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for _, line in numbered), strict=True)
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {start}: not valid CSV ({error}); check its quotes") from None
        if cells is None:
            return
        if cells:
            yield start, cells
        start = reader.line_num + 1


def _cell_table(
    numbered: list[tuple[int, list[str]]], columns: list[str] | None, path: Path, drops_ragged: bool
) -> Table:
    if columns == []:
        columns = [str(number) for number in range(len(numbered[0][1]))] if numbered else []
    elif columns is None:
        line, columns = numbered.pop(0) if numbered else (1, [])
        if len(set(columns)) != len(columns):
            raise ValueError(f"{path}, line {line}: two columns have one name; rename one of {columns}")
    whole = [(line, cells) for line, cells in numbered if len(cells) == len(columns)]
    if len(whole) != len(numbered) and not drops_ragged:
        line, cells = next((line, cells) for line, cells in numbered if len(cells) != len(columns))
        raise ValueError(
            f"{path}, line {line}: {len(cells)} cells where there are {len(columns)} columns; "
            "mend or delete the line"
        )
    rows: list[dict[str, Any]] = [dict(zip(columns, cells, strict=True)) for _, cells in whole]
    return Table(str(path), rows, [line for line, _ in whole], len(numbered) - len(whole))


def _json_table(numbered: list[tuple[int, str]], path: Path) -> Table:
    """JSON lines, or one list of objects over any number of lines."""
    if numbered and numbered[0][1].lstrip().startswith("["):
        return Table(str(path), _parse("\n".join(line for _, line in numbered), path, 1, list))
    filled = [(number, line) for number, line in numbered if line.strip()]
    rows = [_parse(line, path, number, dict) for number, line in filled]
    return Table(str(path), rows, [number for number, _ in filled])


def _parse(text: str, path: Path, line: int, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        place = f"{path}, line {line + getattr(error, 'lineno', 1) - 1}"
        raise ValueError(f"{place}: not JSON ({str(error)[:60]}); write one object a line") from None
    rows = value if kind is list else [value]
    if not isinstance(value, kind) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}, line {line}: not a JSON object with a key for each column")
    return value
