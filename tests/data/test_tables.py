"""Tables from files and data sets, against hand-worked rows, the csv module and `datasets` itself."""

import csv
import io
import json
from pathlib import Path

import datasets
import pytest

from hfbert.data.tables import SourceOptions, Table, hold_out, read_dataset, read_table

HEAD = "text\tlabel\n"


def write(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_text(text, encoding=encoding, newline="")
    return path


def test_quotes_and_words_for_nothing_are_text_between_tabs(tmp_path: Path) -> None:
    text = 'text\tlabel\n" quoted\t1\nnull\t0\nNA\t1\n他说"好\'\tnull\n'
    table = read_table(write(tmp_path, "a.tsv", text))
    assert [row["text"] for row in table.rows] == ['" quoted', "null", "NA", "他说\"好'"]
    assert table.rows[3]["label"] == "null"
    assert [table.place(row) for row in (0, 3)] == [f"{tmp_path}/a.tsv, line 2", f"{tmp_path}/a.tsv, line 5"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(
    tmp_path: Path, ending: str, encoding: str
) -> None:
    text = ending.join(["text\tlabel", "a\x0bb\u2028c\t1", "茶\t0", ""])
    table = read_table(write(tmp_path, "a.tsv", text, encoding))
    assert table.rows == [{"text": "a\x0bb\u2028c", "label": "1"}, {"text": "茶", "label": "0"}]


def test_csv_cells_are_what_the_csv_module_reads_and_lines_are_where_they_start(tmp_path: Path) -> None:
    rows = [
        ["text", "label"],
        ["a, b", "1"],
        ['say "好"', "0"],
        ["two\nlines", "1"],
        ["", "0"],
        ["last", "1"],
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    table = read_table(write(tmp_path, "a.csv", text.getvalue()))
    assert [[row["text"], row["label"]] for row in table.rows] == rows[1:]
    assert table.lines == [2, 3, 4, 6, 7]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_json_is_read_as_lines_or_as_one_list(tmp_path: Path, name: str) -> None:
    rows = [{"text": "tea", "label": 1}, {"text": "茶", "label": None}]
    lines = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    as_lines = read_table(write(tmp_path, name, lines))
    assert as_lines.rows == rows and as_lines.place(1).endswith(f"{name}, line 3")
    as_list = read_table(write(tmp_path, name, json.dumps(rows, indent=2)))
    assert as_list.rows == rows and as_list.place(1).endswith(f"{name}, row 2")


def test_columns_without_names_have_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "很好\tpositive\n不好\tnegative\n")
    assert read_table(path, []).rows[1] == {"0": "不好", "1": "negative"}
    assert read_table(path, ["x", "y"]).rows[0] == {"x": "很好", "y": "positive"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", HEAD + "one\t1\ntwo\n", r"a\.tsv, line 3: 1 cells where there are 2 columns"),
        ("a.tsv", HEAD + "one\t1\textra\n", r"a\.tsv, line 2: 3 cells where there are 2 columns"),
        ("a.csv", 'text,label\nok,1\n"open,1\n', r"a\.csv, line 3: not valid CSV"),
        ("a.csv", "text,text\nok,1\n", r"line 1: two columns have one name"),
        ("a.tsv", HEAD, r"a\.tsv: holds no rows"),
        ("a.csv", "", r"a\.csv: holds no rows"),
        ("a.jsonl", "", r"a\.jsonl: holds no rows"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"text": "a"}\n[1, 2]\n', r"a\.jsonl, line 2: not a JSON object"),
        ("a.json", '[{"text": "a"},\n 3]', r"a\.json, line 1: not a JSON object"),
        ("a.xlsx", "x", r"a\.xlsx: not a kind of table"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_table(write(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_unicode_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.tsv: No such file"):
        read_table(tmp_path / "none.tsv")
    path = tmp_path / "gbk.tsv"
    path.write_bytes((HEAD + "好\t1\n").encode("gb18030"))
    with pytest.raises(ValueError, match=r"gbk\.tsv, line 2: not UTF-8; convert it"):
        read_table(path)


def test_ragged_lines_are_dropped_and_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.tsv", HEAD + "a\t1\nbroken\nb\t0\n"), drops_ragged=True)
    assert [row["text"] for row in table.rows] == ["a", "b"]
    assert table.num_dropped == 1 and table.lines == [2, 4]


def test_a_saved_data_set_gives_names_for_its_numbers(tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["bad", "好"]),
            "tags": datasets.List(datasets.ClassLabel(names=["O", "B-地"])),
        }
    )
    rows = {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [], [1]]}
    data = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=features)})
    data.save_to_disk(str(tmp_path / "saved"))
    table = read_dataset(str(tmp_path / "saved"))["train"]
    assert [row["label"] for row in table.rows] == ["好", "bad", None]
    assert [row["tags"] for row in table.rows] == [["O", "B-地"], [], ["B-地"]]
    assert table.place(0).endswith("saved (train), row 1")


def test_a_folder_of_files_has_the_splits_that_datasets_sees(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", '{"text": "a", "label": 1}\n')
    write(tmp_path, "test.jsonl", '{"text": "b", "label": 0}\n')
    parts = read_dataset(str(tmp_path))
    assert {name: table.rows for name, table in parts.items()} == {
        "train": [{"text": "a", "label": 1}],
        "test": [{"text": "b", "label": 0}],
    }


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": ["茶"], "score": [2.5]}).to_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").rows == [{"text": "茶", "score": 2.5}]


def test_a_script_data_set_says_what_to_do_instead(tmp_path: Path) -> None:
    write(tmp_path, f"{tmp_path.name}.py", "import datasets\n")
    with pytest.raises(ValueError) as caught:
        read_dataset(str(tmp_path))
    assert "cannot be loaded" in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_that_leads_nowhere_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"--dataset_name no/such-data-set cannot be loaded") as caught:
        read_dataset("no/such-data-set")
    assert "\n" not in str(caught.value)


def test_a_missing_column_is_told_with_those_that_are_there() -> None:
    table = Table("a.csv", [{"review": "x", "stars": 1}])
    with pytest.raises(
        ValueError, match=r"no column 'text', only review, stars: choose one with --text_column"
    ):
        table.require("text", "choose one with --text_column")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"dataset_name": "pydoc"}, "terms"),
        ({"dataset_name": "nyu-mll/glue"}, "glue"),
        ({"dataset_name": "data/好/"}, "好"),
        ({"train_file": "wnut17/wnut17train.conll"}, "wnut17train"),
        ({"train_file": "chnsenticorp/train.tsv"}, "chnsenticorp"),
        ({"validation_file": "a/dev.tsv"}, "a"),
        ({}, "squad"),
    ],
)
def test_a_task_is_called_by_its_data(given: dict[str, str], name: str) -> None:
    assert SourceOptions(**given).task("terms", "squad") == name  # type: ignore[arg-type]


@pytest.mark.parametrize(("percentage", "share"), [(10, 0.1), (50, 0.5), (20, 0.2), (1, 0.01)])
def test_what_is_held_out_is_the_share_that_was_asked_for_and_no_row_twice(
    percentage: float, share: float
) -> None:
    kept, held_out = hold_out(1000, percentage)
    assert sorted(kept + held_out) == list(range(1000))
    assert len(held_out) == 1000 * share


@pytest.mark.parametrize(
    ("option", "value"),
    [("validation_split_percentage", 0), ("validation_split_percentage", 100), ("max_train_samples", 0)],
)
def test_limits_that_leave_nothing_are_refused(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=option):
        SourceOptions(**{option: value})  # type: ignore[arg-type]
