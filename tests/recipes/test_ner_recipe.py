"""The recipe for tags, through `main`, on small column files in both languages."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from seqeval.metrics import f1_score
from transformers import AutoModelForTokenClassification

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import ner  # noqa: E402

from hfbert import HFBertForTokenClassification  # noqa: E402
from hfbert.data.columns import read_columns  # noqa: E402
from hfbert.data.tags import to_iob2  # noqa: E402
from hfbert.predict import load_predictor, tag  # noqa: E402
from hfbert.training.options import run  # noqa: E402

QUICK = [
    "--global_batch_size",
    "8",
    "--learning_rate",
    "5e-3",
    "--report_to",
    "none",
    "--num_train_epochs",
    "8",
]


def block(draw: random.Random, scheme: str) -> str:
    """A sentence whose names give their tags away, in either language."""
    single, begin, end = ("S", "B", "E") if scheme == "IOBES" else ("B", "B", "I")
    if draw.random() < 0.5:
        pairs = [
            (draw.choice(["anna", "bob"]), f"{single}-PER"),
            ("is", "O"),
            ("in", "O"),
            ("paris", f"{single}-LOC"),
        ]
    else:
        pairs = [
            ("安", f"{begin}-PER"),
            ("娜", f"{end}-PER"),
            ("在", "O"),
            ("北", f"{begin}-LOC"),
            ("京", f"{end}-LOC"),
        ]
        pairs = pairs if draw.random() < 0.7 else pairs[2:]
    return "\n".join(f"{word}\t{kind}" for word, kind in pairs)


def write(path: Path, count: int, seed: int, scheme: str = "IOB2") -> str:
    draw = random.Random(seed)
    path.write_text("\n\n".join(block(draw, scheme) for _ in range(count)) + "\n", encoding="utf-8")
    return str(path)


def flags(start: Path, folder: Path, *more: str) -> list[str]:
    return ["--model_name_or_path", str(start), "--output_dir", str(folder), "--stride", "8", *QUICK, *more]


def leaf(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*/results.json")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("scheme", ["IOB2", "IOBES"])
def test_tags_of_any_scheme_are_learned_written_back_and_used(
    start: Path, tmp_path: Path, scheme: str
) -> None:
    train, dev = write(tmp_path / "train.txt", 60, 1, scheme), write(tmp_path / "dev.txt", 20, 2, scheme)
    test = write(tmp_path / "test.txt", 12, 3, scheme)
    data = ["--train_file", train, "--validation_file", dev, "--test_file", test]
    ner.main(flags(start, tmp_path / "run", *data))
    results = leaf(tmp_path / "run")
    assert results["metrics"]["f1"] >= 0.9 > 0.5 > results["baseline"]["f1"]
    assert set(results["types"]) == {"LOC", "PER"}
    truths = read_columns(test)
    found = read_columns(tmp_path / "run" / "predictions_test.conll", tag_column=-1)
    assert [one.words for one in found] == [one.words for one in truths]
    scores = json.loads((tmp_path / "run" / "results_test.json").read_text())
    gold = [to_iob2(one.tags, scheme) for one in truths]
    assert scores["f1"] == pytest.approx(f1_score(gold, [list(one.tags) for one in found]))
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run" / "model")
    assert isinstance(model, HFBertForTokenClassification)
    assert list(model.config.id2label.values()) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    (entities,) = tag(load_predictor("tag", str(tmp_path / "run" / "model")), ["安娜在北京"])
    assert [(one["type"], one["text"]) for one in entities] == [("PER", "安娜"), ("LOC", "北京")]


def test_words_past_the_limit_and_words_without_pieces_get_a_tag(start: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.txt", 30, 1)
    words = ["anna", "is", "\u200b", "in", "paris"] * 40
    (tmp_path / "test.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    ner.main(flags(start, tmp_path / "run", "--train_file", train, "--test_file", str(tmp_path / "test.txt")))
    (found,) = read_columns(tmp_path / "run" / "predictions_test.conll")
    assert list(found.words) == words
    assert not (tmp_path / "run" / "results_test.json").exists()


def test_a_test_set_without_any_entity_and_one_with_an_unknown_tag(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write(tmp_path / "train.txt", 30, 1)
    (tmp_path / "dev.txt").write_text("tea\tO\nis\tO\n")
    data = ["--train_file", train, "--validation_file", str(tmp_path / "dev.txt")]
    ner.main(flags(start, tmp_path / "run", *data))
    assert set(leaf(tmp_path / "run")["metrics"]) == {"precision", "recall", "f1", "accuracy"}
    (tmp_path / "dev.txt").write_text("tea\tO\nis\tB-ORG\n")
    with pytest.raises(SystemExit):
        run(ner.main, flags(start, tmp_path / "other", *data))
    assert "dev.txt, line 2: tag 'B-ORG' never occurs in the training set" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("tea\tO\nis\n", [], "train.txt, line 2: 1 columns"),
        ("tea\tO\n", [], "every tag is O"),
        ("tea\nis\n", [], "train.txt, line 1: no tags"),
        ("tea\tB-X\n", ["--stride", "60"], "--stride 60 is not from 0 up to 45"),
        ("tea\tB-X\n", ["--tag_column", "5"], "--tag_column 5"),
        ("tea\tB-X\n", ["--max_length", "64"], "--max_length 64 is more than the 48"),
    ],
)
def test_bad_input_ends_with_one_line_and_leaves_nothing(
    text: str,
    more: list[str],
    message: str,
    start: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.txt").write_text(text)
    files = ["--train_file", str(tmp_path / "train.txt"), "--validation_file", str(tmp_path / "train.txt")]
    arguments = [
        "--model_name_or_path",
        str(start),
        "--output_dir",
        str(tmp_path / "run"),
        *QUICK,
        *files,
        *more,
    ]
    with pytest.raises(SystemExit) as caught:
        run(ner.main, arguments if "--stride" in more else [*arguments, "--stride", "8"])
    shown = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert caught.value.code == 2 and len(shown) == 1 and message in shown[0] and len(shown[0]) <= 300
    assert not (tmp_path / "run").exists()
