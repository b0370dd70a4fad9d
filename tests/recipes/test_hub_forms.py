"""Data sets in the form that the Hub has them, saved to a folder: every recipe reads its own."""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import glue  # noqa: E402
import ner  # noqa: E402
import squad  # noqa: E402
import swag  # noqa: E402

TEXT = datasets.Value("string")
TAGS = ["O", "B-PER", "I-PER"]
NER = (
    {"id": TEXT, "tokens": datasets.List(TEXT), "ner_tags": datasets.List(datasets.ClassLabel(names=TAGS))},
    {"id": "1", "tokens": ["安", "娜", "sees"], "ner_tags": [1, 2, 0]},
    {"ner_tags": []},
)
ANSWERS = {"text": datasets.List(TEXT), "answer_start": datasets.List(datasets.Value("int32"))}
SQUAD = (
    {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS},
    {
        "id": "1",
        "title": "t",
        "context": "anna is in paris",
        "question": "who?",
        "answers": {"text": ["anna"], "answer_start": [0]},
    },
    {"answers": {"text": [], "answer_start": []}},
)
ENDINGS = {f"ending{number}": TEXT for number in range(4)}
SWAG = (
    {"sent1": TEXT, "sent2": TEXT} | ENDINGS | {"label": datasets.ClassLabel(names=["0", "1", "2", "3"])},
    {"sent1": "anna sees", "sent2": "", "label": 2} | {name: f"tea {name[-1]}" for name in ENDINGS},
    {"label": -1},
)
OWN = (
    {"text": TEXT, "label": datasets.ClassLabel(names=["负", "正"])},
    {"text": "tea is good", "label": 1},
    {"label": -1},
)


@pytest.mark.parametrize(
    ("recipe", "form", "more"),
    [
        (glue, OWN, []),
        (ner, NER, ["--stride", "8"]),
        (squad, SQUAD, ["--doc_stride", "16"]),
        (swag, SWAG, []),
    ],
    ids=["glue", "ner", "squad", "swag"],
)
def test_a_saved_data_set_is_trained_measured_and_predicted(
    recipe: Any, form: Any, more: list[str], start: Path, tmp_path: Path
) -> None:
    features, row, unlabelled = form
    rows = [row] * 8
    if recipe is glue:
        rows = [row, row | {"label": 0}] * 4
    parts = {"train": rows, "validation": rows[:4], "test": [row | unlabelled] * 3}
    saved = {
        part: datasets.Dataset.from_list(own, features=datasets.Features(features))
        for part, own in parts.items()
    }
    datasets.DatasetDict(saved).save_to_disk(str(tmp_path / "data"))
    arguments = [
        "--model_name_or_path",
        str(start),
        "--dataset_name",
        str(tmp_path / "data"),
        "--max_steps",
        "2",
    ]
    arguments += [
        "--output_dir",
        str(tmp_path / "run"),
        "--global_batch_size",
        "4",
        "--learning_rate",
        "1e-3",
    ]
    recipe.main([*arguments, "--report_to", "none", *more])
    (path,) = (tmp_path / "run").rglob("results.json")
    results = json.loads(path.read_text(encoding="utf-8"))
    assert results["train_rows"] == 8 and results["eval_rows"] == 4 and results["task"] == "data"
    (predictions,) = (tmp_path / "run").rglob("predictions_test*")
    lines = [line for line in predictions.read_text(encoding="utf-8").splitlines() if line]
    assert len(lines) == (9 if recipe is ner else 3)
