"""The recipe for questions, through `main`, on small files in both languages."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForQuestionAnswering

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import squad  # noqa: E402

from hfbert import HFBertForQuestionAnswering  # noqa: E402
from hfbert.predict import answer, load_predictor  # noqa: E402
from hfbert.training.metrics import AnswerMetric  # noqa: E402
from hfbert.training.options import run  # noqa: E402

QUICK = ["--global_batch_size", "16", "--learning_rate", "5e-3", "--report_to", "none", "--doc_stride", "16"]


def paragraph(draw: random.Random, number: int, has_negative: bool) -> dict[str, Any]:
    """A context and a question whose answer is the only name, or place, in it."""
    if draw.random() < 0.5:
        name, filler = draw.choice(["anna", "bob"]), " ".join(draw.choice("uvwxyz") for _ in range(12))
        context, question = f"{filler} {name} is in {filler}", "who?"
    else:
        name, context = "安娜", "茶很热" * draw.randint(1, 3) + "安娜在北京"
        question = "谁？"
    start = context.index(name)
    given: dict[str, Any] = {"answers": [{"text": name, "answer_start": start + draw.choice([0, 0, 1])}]}
    if has_negative and draw.random() < 0.4:
        context, given = context.replace(name, "x"), {"answers": [], "is_impossible": True}
    return {"context": context, "qas": [{"id": str(number), "question": question, **given}]}


def write(path: Path, count: int, seed: int, has_negative: bool = False) -> str:
    draw = random.Random(seed)
    paragraphs = [paragraph(draw, number, has_negative) for number in range(count)]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False), encoding="utf-8")
    return str(path)


def flags(start: Path, folder: Path, *more: str) -> list[str]:
    return ["--model_name_or_path", str(start), "--output_dir", str(folder), *QUICK, *more]


def leaf(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*/results.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_answers_are_learned_written_with_their_places_and_used(start: Path, tmp_path: Path) -> None:
    data = ["--train_file", write(tmp_path / "train.json", 120, 1)]
    data += ["--validation_file", write(tmp_path / "dev.json", 30, 2)]
    squad.main(flags(start, tmp_path / "run", "--num_train_epochs", "6", *data))
    results = leaf(tmp_path / "run")
    assert results["metrics"]["f1"] >= 80 > 60 > results["baseline"]["f1"]
    lines = (tmp_path / "run" / "predictions_validation.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    paragraphs = json.loads((tmp_path / "dev.json").read_text(encoding="utf-8"))["data"][0]["paragraphs"]
    for row, part in zip(rows, paragraphs, strict=True):
        for one in row["n_best"]:
            assert one["text"] == part["context"][one["start"] : one["end"]]
    # the written answers score what the results say
    scores = AnswerMetric().compute(
        predictions=[{"id": row["id"], "prediction_text": row["n_best"][0]["text"]} for row in rows],
        references=[
            {"id": part["qas"][0]["id"], "answers": [part["qas"][0]["answers"][0]["text"]]}
            for part in paragraphs
        ],
    )
    assert scores == pytest.approx(results["metrics"])
    folder = tmp_path / "run" / "model"
    assert isinstance(AutoModelForQuestionAnswering.from_pretrained(folder), HFBertForQuestionAnswering)
    context = "x y z u v w bob is in x y z"
    (found,) = answer(load_predictor("answer", str(folder)), [("who?", context)])
    assert found["text"] == context[found["start"] : found["end"]] and "bob" in found["text"]


def test_questions_without_an_answer_are_told_by_a_threshold(start: Path, tmp_path: Path) -> None:
    data = ["--train_file", write(tmp_path / "train.json", 120, 1, True)]
    data += ["--validation_file", write(tmp_path / "dev.json", 40, 2, True), "--version_2_with_negative"]
    squad.main(flags(start, tmp_path / "run", "--num_train_epochs", "6", *data))
    results = leaf(tmp_path / "run")
    paragraphs = json.loads((tmp_path / "dev.json").read_text(encoding="utf-8"))["data"][0]["paragraphs"]
    share = 100 * sum(not part["qas"][0]["answers"] for part in paragraphs) / len(paragraphs)
    assert results["metrics"]["f1"] > max(share, 100 - share)  # better than always and than never
    assert isinstance(results["null_threshold"], float)


def test_chinese_is_counted_in_characters(start: Path, tmp_path: Path) -> None:
    data = ["--train_file", write(tmp_path / "train.json", 40, 1), "--language", "zh", "--max_steps", "2"]
    squad.main(flags(start, tmp_path / "run", *data))
    assert set(leaf(tmp_path / "run")["metrics"]) == {"exact_match", "f1"}


def change(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    content["data"][0]["paragraphs"][2]["qas"][0] |= values
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        (
            {"answers": [{"text": "coffee", "answer_start": 0}]},
            [],
            "question 2: the answer 'coffee' is not in its",
        ),
        ({"answers": None}, [], "question 2: no answers, and train needs them"),
        ({"question": "who " * 60}, [], "question 2: a question of 60 tokens leaves no room"),
        ({}, ["--doc_stride", "48"], "--doc_stride 48 is not from 1 to below --max_length 48"),
        ({}, ["--doc_stride", "0"], "doc_stride=0 must be 1 or more"),
        ({}, ["--train_file", "none.json"], "none.json: No such file"),
    ],
)
def test_bad_input_ends_with_one_line_and_leaves_nothing(
    values: dict[str, Any],
    more: list[str],
    message: str,
    start: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train = write(tmp_path / "train.json", 8, 1)
    change(tmp_path / "train.json", **values)
    arguments = ["--model_name_or_path", str(start), "--output_dir", str(tmp_path / "run"), *QUICK[:-2]]
    arguments += ["--max_steps", "1", "--validation_split_percentage", "20"]
    arguments += more if "--train_file" in more else ["--train_file", train, *more]
    arguments += [] if "--doc_stride" in more else QUICK[-2:]
    with pytest.raises(SystemExit) as caught:
        run(squad.main, arguments)
    shown = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert caught.value.code == 2 and len(shown) == 1 and message in shown[0] and len(shown[0]) <= 300
    assert not (tmp_path / "run").exists()
