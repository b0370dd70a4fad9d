"""The recipe for sentences, through `main` and its real command, on small files in both languages."""

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import glue  # noqa: E402

from hfbert import HFBertForSequenceClassification  # noqa: E402
from hfbert.training.comparison import summarise_run  # noqa: E402
from hfbert.training.options import run  # noqa: E402

QUICK = [
    "--global_batch_size",
    "16",
    "--learning_rate",
    "3e-3",
    "--report_to",
    "none",
    "--logging_steps",
    "5",
]


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """A text and its label, which a word of it gives away."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        is_good = draw.random() < 0.5
        english = f"{draw.choice(['tea', 'rain'])} is {'good' if is_good else 'bad'} in {draw.choice('xyz')}"
        chinese = f"{draw.choice('茶雨')}很{'好' if is_good else '坏'}"
        rows.append((draw.choice([english, chinese]), "正" if is_good else "负"))
    return rows


def write_csv(path: Path, rows: list[tuple[Any, ...]], head: str) -> str:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    train = write_csv(tmp_path / "train.csv", sentences(160, 1), "评论,标签")
    dev = write_csv(tmp_path / "dev.csv", sentences(40, 2), "评论,标签")
    test = write_csv(tmp_path / "test.csv", [(text,) for text, _ in sentences(9, 3)], "评论")
    columns = ["--text_column", "评论", "--label_column", "标签"]
    return ["--train_file", train, "--validation_file", dev, "--test_file", test, *columns]


def flags(start: Path, folder: Path, *more: str) -> list[str]:
    return ["--model_name_or_path", str(start), "--output_dir", str(folder), *QUICK, *more]


def leaf(folder: Path) -> dict[str, Any]:
    (path,) = folder.rglob("results.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_table_of_ones_own_is_learned_and_the_model_opens_with_auto_classes(
    start: Path, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    glue.main(flags(start, tmp_path / "run", "--num_train_epochs", "6", *files))
    results = leaf(tmp_path / "run")
    assert results["metrics"]["accuracy"] >= 0.9 > 0.7 > results["baseline"]["accuracy"]
    assert results["confusion"]["labels"] == ["正", "负"] and results["train_rows"] == 160
    assert sum(map(sum, results["confusion"]["matrix"])) == results["eval_rows"] == 40
    folder = tmp_path / "run" / tmp_path.name / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert isinstance(model, HFBertForSequenceClassification)
    logits = model(**tokenizer("茶很好", return_tensors="pt")).logits
    assert model.config.id2label[int(logits.argmax())] == "正"
    shown = capsys.readouterr().out
    assert "accuracy" in shown and "baseline" in shown


def test_a_test_set_without_labels_gets_predictions_and_one_with_labels_its_scores_too(
    start: Path, files: list[str], tmp_path: Path
) -> None:
    glue.main(flags(start, tmp_path / "run", "--num_train_epochs", "6", *files))
    folder = tmp_path / "run" / tmp_path.name
    lines = (folder / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()
    truths = [label for _, label in sentences(9, 3)]
    assert len(lines) == 9 and {json.loads(line)["label"] for line in lines} <= {"正", "负"}
    assert not (folder / "results_test.json").exists()
    labelled = write_csv(tmp_path / "labelled.csv", sentences(9, 3), "评论,标签")
    more = [labelled if name.endswith("test.csv") else name for name in files]
    glue.main(flags(start, tmp_path / "again", "--num_train_epochs", "6", *more))
    again = tmp_path / "again" / tmp_path.name
    guesses = [
        json.loads(line)["label"] for line in (again / "predictions_test.jsonl").open(encoding="utf-8")
    ]
    right = sum(guess == truth for guess, truth in zip(guesses, truths, strict=True))
    assert json.loads((again / "results_test.json").read_text())["accuracy"] == pytest.approx(right / 9)


def test_grid_and_seeds_make_runs_of_which_the_best_model_is_kept(
    start: Path, files: list[str], tmp_path: Path
) -> None:
    run_flags = flags(start, tmp_path / "run", "--num_train_epochs", "1", *files)
    glue.main([*run_flags, "--grid", "3e-3", "1e-6", "--seeds", "2"])
    folder = tmp_path / "run" / tmp_path.name
    names = ["lr-0.003-seed-42", "lr-0.003-seed-43", "lr-1e-06-seed-42", "lr-1e-06-seed-43"]
    assert sorted(path.name for path in folder.glob("lr-*")) == names
    assert not list(folder.glob("lr-*/model")) and not list(folder.rglob("checkpoint-*"))
    scores = [leaf(folder / name)["metrics"]["accuracy"] for name in names]
    # the model that was kept has the best of the four scores
    measured = ["--do_train", "false", "--model_name_or_path", str(folder / "model"), "--output_dir"]
    glue.main([*QUICK, *measured, str(tmp_path / "measured"), "--num_train_epochs", "1", *files])
    assert leaf(tmp_path / "measured")["metrics"]["accuracy"] == max(scores)
    (summary,) = summarise_run(tmp_path / "run")
    assert len(summary.scores) == 2 and summary.mean == pytest.approx(
        50 * max(sum(scores[:2]), sum(scores[2:]))
    )


def test_the_same_command_again_trains_nothing_and_a_killed_one_goes_on(
    start: Path, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = flags(start, tmp_path / "whole", "--num_train_epochs", "2", "--save_steps", "4", *files)
    glue.main(whole)
    expected = leaf(tmp_path / "whole")
    before = capsys.readouterr().out
    glue.main(whole)
    again = capsys.readouterr().out
    assert "lr-0.003-seed-42" in before and "lr-0.003-seed-42" not in again
    assert leaf(tmp_path / "whole") == expected

    broken = flags(start, tmp_path / "broken", "--num_train_epochs", "2", "--save_steps", "4", *files)
    calls = 0
    judge = glue.judge

    def die(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    glue.judge = die
    with pytest.raises(KeyboardInterrupt):
        glue.main(broken)
    glue.judge = judge
    assert calls == 1 and list((tmp_path / "broken").rglob("checkpoint-*"))
    glue.main(broken)
    assert "continuing from" in capsys.readouterr().out
    assert leaf(tmp_path / "broken")["metrics"] == expected["metrics"]


def glue_folder(folder: Path) -> Path:
    """RTE and STS-B in the official layout, with test sets as long as the server's."""
    draw = random.Random(0)
    for name, column in (("RTE", "label"), ("STS-B", "score")):
        (folder / name).mkdir(parents=True)
        for part, count in (("train", 64), ("dev", 16), ("test", 3000 if name == "RTE" else 1379)):
            lines = ["index\tsentence1\tsentence2" + ("" if part == "test" else f"\t{column}")]
            for number in range(count):
                same = draw.random() < 0.5
                first = draw.choice(["tea is good", "anna sees bob", "雨在北京"])
                second = first if same else "rain is bad"
                label = ("entailment" if same else "not_entailment") if name == "RTE" else 5.0 * same
                lines.append(f"{number}\t{first}\t{second}" + ("" if part == "test" else f"\t{label}"))
            (folder / name / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_several_tasks_fill_one_table_and_one_submission(start: Path, tmp_path: Path) -> None:
    data = ["--dataset_name", str(glue_folder(tmp_path / "glue")), "--task_name", "rte", "stsb", "--submit"]
    glue.main(flags(start, tmp_path / "run", "--num_train_epochs", "4", *data))
    rte, stsb = summarise_run(tmp_path / "run")
    assert (rte.task, rte.metric, stsb.task, stsb.metric) == ("rte", "accuracy", "stsb", "spearmanr")
    assert set(stsb.others) == {"pearson"} and rte.published == 66.4
    with zipfile.ZipFile(tmp_path / "run" / "submission.zip") as archive:
        assert sorted(archive.namelist()) == ["RTE.tsv", "STS-B.tsv"]
        lines = archive.read("RTE.tsv").decode().splitlines()
    assert len(lines) == 3001 and {line.split("\t")[1] for line in lines[1:]} <= {
        "entailment",
        "not_entailment",
    }


def test_a_checkpoint_with_its_labels_in_another_order_scores_the_same(start: Path, tmp_path: Path) -> None:
    """F1 asks which label is positive, so a wrong order would show."""
    (tmp_path / "MRPC").mkdir()
    draw = random.Random(1)
    for part, count in (("train", 64), ("dev", 24)):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        lines += [
            f"{int(draw.random() < 0.6)}\t1\t2\ttea is {draw.choice('xyz')}\train" for _ in range(count)
        ]
        (tmp_path / "MRPC" / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    data = ["--dataset_name", str(tmp_path), "--task_name", "mrpc", "--num_train_epochs", "1"]
    glue.main(flags(start, tmp_path / "run", *data))
    folder = tmp_path / "run" / "mrpc" / "model"
    model = HFBertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        for parameter in (model.classifier.weight, model.classifier.bias):
            parameter.copy_(parameter.flip(0))
    names = dict(enumerate(["EQUIVALENT", "Not_Equivalent"]))
    model.config.id2label, model.config.label2id = names, {name: number for number, name in names.items()}
    model.save_pretrained(tmp_path / "permuted")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "permuted")
    for name in (folder, tmp_path / "permuted"):
        measure = flags(name, tmp_path / f"measured-{name.name}", "--do_train", "false", *data)
        glue.main(measure)
    straight, permuted = (leaf(tmp_path / f"measured-{name}") for name in ("model", "permuted"))
    assert straight["metrics"] == permuted["metrics"] == leaf(tmp_path / "run")["metrics"]


def test_broken_lines_of_qqp_are_left_out_and_said(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "QQP").mkdir()
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    rows = [f"{number}\t1\t2\twho is anna?\twho is bob?\t{number % 2}" for number in range(20)]
    for part, more in (("train", ["broken\tline"]), ("dev", [])):
        (tmp_path / "QQP" / f"{part}.tsv").write_text("\n".join([head, *rows, *more]) + "\n")
    data = ["--dataset_name", str(tmp_path), "--task_name", "qqp", "--max_steps", "1"]
    glue.main(flags(start, tmp_path / "run", *data))
    assert "train.tsv: 1 broken lines left out" in capsys.readouterr().out
    assert leaf(tmp_path / "run")["train_rows"] == 20


def test_files_without_names_of_columns_are_read_by_number(start: Path, tmp_path: Path) -> None:
    rows = [f"{text}\t{label}" for text, label in sentences(60, 4)]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    named = ["--train_file", str(tmp_path / "train.tsv"), "--text_column", "0", "--label_column", "1"]
    glue.main(flags(start, tmp_path / "run", "--max_steps", "2", *named))
    assert leaf(tmp_path / "run")["train_rows"] == 54 and leaf(tmp_path / "run")["eval_rows"] == 6


BAD = {
    "dev label never seen": ("dev.csv", "text,label\na,1\nb,2\n", "dev.csv, line 3: label '2' is not one"),
    "training with -1": (
        "train.csv",
        "text,label\na,1\nb,-1\nc,0\n",
        "train.csv, line 3: label '-1' means none",
    ),
    "empty label": ("train.csv", "text,label\na,1\nb,\nc,0\n", "train.csv, line 3: label '' means none"),
    "empty text": ("train.csv", "text,label\na,1\n,0\n", "train.csv, line 3: 'text' is empty"),
    "ragged row": ("train.csv", "text,label\na,1\nb\n", "train.csv, line 3: 1 cells where there are 2"),
    "wrong columns": (
        "train.csv",
        "review,stars\na,1\n",
        "no column 'text', only review, stars: choose one with --text_column",
    ),
    "one label": ("train.csv", "text,label\na,1\nb,1\n", "every row has the label '1'"),
    "no rows": ("train.csv", "text,label\n", "train.csv: holds no rows"),
    "a score that is none": ("dev.csv", "text,label\na,x\n", "dev.csv, line 2: label 'x' is not one"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_rows_end_with_one_line_and_leave_nothing(
    case: str, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, text, message = BAD[case]
    for file in ("train.csv", "dev.csv"):
        (tmp_path / file).write_text("text,label\na,1\nb,0\n")
    (tmp_path / name).write_text(text)
    data = ["--train_file", str(tmp_path / "train.csv"), "--validation_file", str(tmp_path / "dev.csv")]
    expect_one_line(flags(start, tmp_path / "run", "--max_steps", "1", *data), message, capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--task_name", "snli"], "task_name=snli: choose from cola"),
        (["--submit"], "submit=true is for GLUE's tasks"),
        ([], "no rows are named"),
        (["--train_file", "none.csv"], "none.csv: No such file"),
        (["--train_file", "a.xlsx"], "not a kind of table"),
        (["--dataset_name", "no/such-data"], "--dataset_name no/such-data cannot be loaded"),
        (["--dataset_name", "pydoc"], "for pydoc choose from package, pair"),
        (["--max_length", "99", "--train_file", "OK"], "--max_length 99 is more than the 48 positions"),
        (["--freeze_layers", "9", "--train_file", "OK"], "--freeze_layers 9: the model has 2 layers"),
        (["--seeds", "0", "--train_file", "OK"], "seeds=0"),
        (["--grid", "0", "--train_file", "OK"], "grid"),
        (["--do_train", "false", "--train_file", "OK"], "has no head for this task"),
    ],
)
def test_bad_options_end_with_one_line(
    more: list[str], message: str, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = write_csv(tmp_path / "ok.csv", sentences(20, 5), "text,label")
    more = [sound if word == "OK" else word for word in more]
    expect_one_line(flags(start, tmp_path / "run", "--max_steps", "1", *more), message, capsys)


def expect_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(glue.main, arguments)
    assert caught.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1 and message in lines[0] and len(lines[0]) <= 300


@pytest.mark.slow
def test_two_processes_measure_every_row_and_agree_with_one(
    start: Path, files: list[str], tmp_path: Path
) -> None:
    found = []
    for processes in (1, 2):
        arguments = flags(start, tmp_path / f"run{processes}", "--num_train_epochs", "2", *files)
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}"]
        command += [str(ROOT / "recipes" / "glue.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(leaf(tmp_path / f"run{processes}"))
    assert found[0]["metrics"] == found[1]["metrics"] and found[0]["confusion"] == found[1]["confusion"]
