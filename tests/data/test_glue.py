"""GLUE's tables and submissions, on small files in the official layouts."""

import zipfile
from pathlib import Path

import datasets
import pytest

from hfbert.data.glue import (
    TASKS,
    read_glue,
    rename_columns,
    submission_files,
    submission_rows,
    write_submission,
)
from hfbert.data.tables import Table

# One training row and one test row of every task, in the layout of the official folders.
FILES = {
    "CoLA/train.tsv": 'gj04\t1\t\tThe "sailors rode.\n',
    "CoLA/dev.tsv": "gj04\t0\t*\tThem rode.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tBill left.\n",
    "SST-2/train.tsv": "sentence\tlabel\nnull \t0\n",
    "SST-2/dev.tsv": "sentence\tlabel\ncharming .\t1\n",
    "SST-2/test.tsv": "index\tsentence\n0\tuneasy .\n",
    "MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t10\t20\tHe said .\t" He said .\n',
    "MRPC/dev.tsv": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t11\t21\tA .\tB .\n",
    "MRPC/test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t12\t22\tC .\tD .\n",
    "STS-B/train.tsv": "index\tgenre\tsentence1\tsentence2\tscore\n0\tnews\tA.\tB.\t3.800\n",
    "STS-B/dev.tsv": "index\tgenre\tsentence1\tsentence2\tscore\n0\tnews\tA.\tC.\t5.000\n",
    "STS-B/test.tsv": "index\tgenre\tsentence1\tsentence2\n0\tnews\tA.\tD.\n",
    "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "0\t1\t2\tWhy?\tWhy so?\t1\nbroken\tline\n1\t3\t4\tHow?\tWho?\t0\n",
    "QQP/dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tA?\tB?\t0\n",
    "QQP/test.tsv": "id\tquestion1\tquestion2\n0\tA?\tB?\n",
    "MNLI/train.tsv": "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA.\tB.\tneutral\tentailment\n",
    "MNLI/dev_matched.tsv": "index\tsentence1\tsentence2\tgold_label\n0\tA.\tB.\tneutral\n",
    "MNLI/dev_mismatched.tsv": "index\tsentence1\tsentence2\tgold_label\n0\tA.\tC.\tcontradiction\n",
    "MNLI/test_matched.tsv": "index\tsentence1\tsentence2\n0\tA.\tD.\n",
    "MNLI/test_mismatched.tsv": "index\tsentence1\tsentence2\n0\tA.\tE.\n",
    "diagnostic/diagnostic.tsv": "index\tsentence1\tsentence2\n0\tThe cat sat.\tThe cat did not sit.\n",
    "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tnot_entailment\n",
    "QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n0\tWho?\tShe.\tentailment\n",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tNA\tB.\tnot_entailment\n",
    "RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n",
    "WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n",
    "WNLI/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t0\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


FIRST_ROWS = {
    "cola": {"text": 'The "sailors rode.', "label": "acceptable"},
    "sst2": {"text": "null ", "label": "negative"},
    "mrpc": {"text": "He said .", "pair": '" He said .', "label": "equivalent"},
    "stsb": {"text": "A.", "pair": "B.", "label": "3.800"},
    "qqp": {"text": "Why?", "pair": "Why so?", "label": "duplicate"},
    "mnli": {"text": "A.", "pair": "B.", "label": "entailment"},
    "qnli": {"text": "Who?", "pair": "He.", "label": "not_entailment"},
    "rte": {"text": "NA", "pair": "B.", "label": "not_entailment"},
    "wnli": {"text": "A.", "pair": "B.", "label": "entailment"},
}


@pytest.mark.parametrize("task_name", list(TASKS))
def test_every_task_is_read_from_its_official_folder(folder: Path, task_name: str) -> None:
    parts = read_glue(task_name, str(folder))
    assert parts["train"].rows[0] == FIRST_ROWS[task_name]
    assert parts == read_glue(task_name, str(folder / TASKS[task_name].folder))
    for part, table in parts.items():
        assert ("label" in table.columns) is not part.startswith("test"), part


def test_mnli_has_both_evaluations_both_tests_and_the_diagnostic_set(folder: Path) -> None:
    parts = read_glue("mnli", str(folder))
    assert parts["validation_mismatched"].rows == [{"text": "A.", "pair": "C.", "label": "contradiction"}]
    assert parts["test_mismatched"].rows == [{"text": "A.", "pair": "E."}]
    assert parts["test_ax"].rows == [{"text": "The cat sat.", "pair": "The cat did not sit."}]


def test_only_broken_lines_of_qqps_training_set_are_dropped_and_they_are_counted(folder: Path) -> None:
    assert read_glue("qqp", str(folder))["train"].num_dropped == 1
    (folder / "QQP/dev.tsv").write_text("id\tquestion1\tquestion2\tis_duplicate\nbroken\n")
    with pytest.raises(ValueError, match=r"dev\.tsv, line 2"):
        read_glue("qqp", str(folder))


def test_mrpc_is_told_apart_from_microsofts_own_files(folder: Path) -> None:
    rows = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t10\t20\ta\tb\n0\t11\t21\tc\td\n1\t12\t22\te\tf\n"
    (folder / "MRPC/train.tsv").unlink()
    (folder / "MRPC/msr_paraphrase_train.txt").write_text("\ufeff" + rows, encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev_ids\.tsv: no such file"):
        read_glue("mrpc", str(folder))
    (folder / "MRPC/dev_ids.tsv").write_text("11\t21\n")
    parts = read_glue("mrpc", str(folder))
    assert [row["text"] for row in parts["train"].rows] == ["a", "e"]
    assert [row["text"] for row in parts["validation"].rows] == ["c"]


def test_the_form_of_the_hub_gives_the_same_rows_with_names_for_labels(tmp_path: Path) -> None:
    names = datasets.ClassLabel(names=["not_equivalent", "equivalent"])
    text = datasets.Value("string")
    features = datasets.Features({"sentence1": text, "sentence2": text, "label": names})
    rows = {"sentence1": ["A .", "B ."], "sentence2": ["C .", "D ."]}
    parts = {
        "train": datasets.Dataset.from_dict(rows | {"label": [1, 0]}, features=features),
        "test": datasets.Dataset.from_dict(rows | {"label": [-1, -1]}, features=features),
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    found = read_glue("mrpc", str(tmp_path / "saved"))
    assert found["train"].rows[0] == {"text": "A .", "pair": "C .", "label": "equivalent"}
    assert [row["label"] for row in found["test"].rows] == [None, None]


def test_a_folder_without_the_task_says_which_ones_it_has(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    with pytest.raises(ValueError, match=r"--task_name qqp: .* has RTE and no QQP; name tasks it has"):
        read_glue("qqp", str(tmp_path))


def test_columns_of_another_task_are_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no column 'premise', only text, stars: rename them"):
        rename_columns("mnli", Table("a.csv", [{"text": "a", "stars": "1"}]))


# What the server asks for: https://gluebenchmark.com/faq
OFFICIAL = {
    "CoLA.tsv": 1063,
    "SST-2.tsv": 1821,
    "MRPC.tsv": 1725,
    "STS-B.tsv": 1379,
    "QQP.tsv": 390_965,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "QNLI.tsv": 5463,
    "RTE.tsv": 3000,
    "WNLI.tsv": 146,
    "AX.tsv": 1104,
}


def test_the_server_gets_all_its_files() -> None:
    assert sorted(submission_files()) == sorted(OFFICIAL)


@pytest.mark.parametrize(
    ("task_name", "part", "label", "name", "line"),
    [
        ("cola", "test", "acceptable", "CoLA.tsv", "1"),
        ("sst2", "test", "negative", "SST-2.tsv", "0"),
        ("mrpc", "test", "equivalent", "MRPC.tsv", "1"),
        ("stsb", "test", 5.3, "STS-B.tsv", "5.000"),
        ("stsb", "test", -0.2, "STS-B.tsv", "0.000"),
        ("stsb", "test", 2.34567, "STS-B.tsv", "2.346"),
        ("mnli", "test_matched", "neutral", "MNLI-m.tsv", "neutral"),
        ("mnli", "test_mismatched", "contradiction", "MNLI-mm.tsv", "contradiction"),
        ("mnli", "test_ax", "entailment", "AX.tsv", "entailment"),
        ("qnli", "test", "not_entailment", "QNLI.tsv", "not_entailment"),
        ("rte", "test", "entailment", "RTE.tsv", "entailment"),
        ("wnli", "test", "entailment", "WNLI.tsv", "1"),
    ],
)
def test_a_file_of_the_submission_has_the_servers_header_labels_and_length(
    task_name: str, part: str, label: str | float, name: str, line: str
) -> None:
    size = OFFICIAL[name]
    found, lines = submission_rows(task_name, part, [label] * size)
    assert found == name
    assert lines[:2] == ["index\tprediction", f"0\t{line}"]
    assert lines[-1] == f"{size - 1}\t{line}" and len(lines) == size + 1
    with pytest.raises(ValueError, match=rf"{name} has {size - 1} rows and the server wants {size}"):
        submission_rows(task_name, part, [label] * (size - 1))


def test_the_zip_has_the_files_at_its_root(tmp_path: Path) -> None:
    write_submission(tmp_path / "submission.zip", {"AX.tsv": ["index\tprediction", "0\tneutral"]})
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        assert archive.namelist() == ["AX.tsv"]
        assert archive.read("AX.tsv") == b"index\tprediction\n0\tneutral\n"
    assert not list(tmp_path.glob("*.partial"))
