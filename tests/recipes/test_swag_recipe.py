"""The recipe for multiple choice, through `main`, on small files in both languages."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForMultipleChoice

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import swag  # noqa: E402

from hfbert import HFBertForMultipleChoice  # noqa: E402
from hfbert.training.options import run  # noqa: E402

COLUMNS = ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label")
QUICK = ["--global_batch_size", "16", "--learning_rate", "3e-3", "--report_to", "none"]


def write(path: Path, count: int, seed: int, is_labelled: bool = True) -> str:
    """The right ending is the good one."""
    draw = random.Random(seed)
    columns = COLUMNS if is_labelled else COLUMNS[:-1]
    lines = [",".join(columns)]
    for _ in range(count):
        label = draw.randrange(4)
        endings = [f"{draw.choice(['rain', '雨'])} is bad" for _ in range(4)]
        endings[label] = draw.choice(["tea is good", "茶很好"])
        lines.append(",".join(["anna sees", draw.choice(["", "bob"]), *endings, *[str(label)] * is_labelled]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def flags(start: Path, folder: Path, *more: str) -> list[str]:
    return ["--model_name_or_path", str(start), "--output_dir", str(folder), *QUICK, *more]


def leaf(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*/results.json")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("is_labelled", [True, False])
def test_the_right_ending_is_learned_and_a_test_set_predicted(
    start: Path, tmp_path: Path, is_labelled: bool
) -> None:
    test = write(tmp_path / "test.csv", 9, 3, is_labelled)
    data = ["--train_file", write(tmp_path / "train.csv", 80, 1), "--test_file", test]
    data += ["--validation_file", write(tmp_path / "dev.csv", 20, 2)]
    swag.main(flags(start, tmp_path / "run", "--num_train_epochs", "6", *data))
    results = leaf(tmp_path / "run")
    assert results["metrics"]["accuracy"] >= 0.9 > 0.5 > results["baseline"]["accuracy"]
    lines = (tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()
    guesses = [json.loads(line)["label"] for line in lines]
    assert len(guesses) == 9
    assert (tmp_path / "run" / "results_test.json").exists() is is_labelled
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "run" / "model")
    assert isinstance(model, HFBertForMultipleChoice)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,b,c,d,e,f,7", "train.csv, line 4: label '7' is not 0, 1, 2 or 3"),
        ("a,b,c,,e,f,1", "train.csv, line 4: 'ending1' is empty"),
        ("a,b,c,d,e,f", "train.csv, line 4: 6 cells where there are 7"),
    ],
)
def test_bad_rows_end_with_one_line_and_leave_nothing(
    line: str, message: str, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write(tmp_path / "train.csv", 2, 1)
    (tmp_path / "train.csv").write_text(
        Path(train).read_text(encoding="utf-8") + line + "\n", encoding="utf-8"
    )
    with pytest.raises(SystemExit) as caught:
        run(swag.main, flags(start, tmp_path / "run", "--max_steps", "1", "--train_file", train))
    shown = [text for text in capsys.readouterr().err.splitlines() if "error:" in text]
    assert caught.value.code == 2 and len(shown) == 1 and message in shown[0]
    assert not (tmp_path / "run").exists()
