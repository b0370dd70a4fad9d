"""Tables and pictures of runs, against hand-worked means and the statistics module."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hfbert.training.comparison import glue_average, show_runs, summarise_run, to_markdown
from hfbert.training.comparison_picture import draw_runs


def write_leaf(folder: Path, score: float, **changes: Any) -> None:
    results = {
        "recipe": "glue",
        "task": "cola",
        "model": "tiny/model",
        "seed": 1,
        "learning_rate": 2e-5,
        "metrics": {"matthews_correlation": score, "accuracy": 0.5},
        "main_metric": "matthews_correlation",
        "baseline": {"matthews_correlation": 0.0},
        "seconds": 90.0,
    }
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results | changes), encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two rates with three seeds each, and a tagger."""
    for rate, scores in ((2e-5, (0.1, 0.2, 0.6)), (5e-5, (0.4, 0.5, 0.45))):
        for seed, score in enumerate(scores):
            confusion = {"labels": ["no", "是"], "matrix": [[seed, 1], [2, 3]]}
            place = tmp_path / f"甲/cola/lr-{rate:g}-seed-{seed}"
            write_leaf(place, score, learning_rate=rate, seed=seed, confusion=confusion)
    types = {"PER": {"f1": 0.5, "number": 3}, "地名": {"f1": 1.0, "number": 1}}
    own = {"recipe": "ner", "task": "weibo", "metrics": {"f1": 0.75}, "main_metric": "f1", "types": types}
    write_leaf(tmp_path / "甲/weibo/lr-1", 0, baseline={"f1": 0.1}, learning_rate=None, **own)
    return tmp_path / "甲"


def test_the_rate_with_the_best_mean_is_shown_with_mean_and_deviation_over_seeds(run: Path) -> None:
    cola, weibo = summarise_run(run)
    assert cola.rate == 5e-5 and cola.run == "甲"
    assert sorted(cola.scores) == pytest.approx([40, 45, 50])
    assert cola.mean == pytest.approx(45) and cola.deviation == pytest.approx(statistics.stdev([40, 45, 50]))
    assert cola.others == {"accuracy": pytest.approx(50)} and cola.baseline == 0
    assert cola.confusion is not None and cola.confusion[1].tolist() == [[0 + 1 + 2, 3], [6, 9]]
    assert weibo.deviation is None and weibo.types == {"PER": 50, "地名": 100}


def test_scores_of_answers_are_percent_already(tmp_path: Path) -> None:
    own = {
        "recipe": "squad",
        "task": "squad",
        "metrics": {"f1": 88.0, "exact_match": 80.0},
        "main_metric": "f1",
    }
    write_leaf(tmp_path / "a", 0, baseline={"f1": 3.0}, **own)
    (one,) = summarise_run(tmp_path / "a")
    assert (one.mean, one.others, one.baseline, one.published) == (88.0, {"exact_match": 80.0}, 3.0, 88.5)


def cells(markdown: str) -> list[list[str]]:
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.replace("\\|", "¦").strip("|").split("|")] for row in rows]


def test_the_markdown_has_every_run_and_the_paper_beside_it(run: Path) -> None:
    markdown = to_markdown([summarise_run(run)])
    head, _, cola, weibo = cells(markdown)
    assert len(head) == len(cola) == len(weibo)
    row = dict(zip(head, cola, strict=True))
    assert row["mean"] == "45.0 ± 5.0" and row["best"] == "50.0" and row["seeds"] == "3"
    assert row["published"] == "52.1" and row["difference"] == "-7.1" and row["minutes"] == "1.5"
    assert dict(zip(head, weibo, strict=True))["published"] == ""
    assert "BERT-base; GLUE on its test sets" in markdown


def test_several_runs_stand_side_by_side_with_the_difference_to_the_first(run: Path, tmp_path: Path) -> None:
    write_leaf(tmp_path / "b|c", 0.5)
    markdown = to_markdown([summarise_run(run), summarise_run(tmp_path / "b|c")])
    table = cells(markdown)[-4:]
    assert table[0] == ["task", "甲", "b¦c"]
    assert table[2] == ["cola", "45.0", "50.0 (+5.0)"]
    assert table[3] == ["weibo", "75.0", ""]


def test_the_average_of_glue_is_that_of_the_papers_columns(tmp_path: Path) -> None:
    """BERT-base's printed average, from its printed scores."""
    scores = {"mnli": 84.6, "qqp": 71.2, "qnli": 90.5, "sst2": 93.5, "cola": 52.1}
    scores |= {"stsb": 85.8, "mrpc": 88.9, "rte": 66.4, "wnli": 56.3}
    for task, score in scores.items():
        metrics = {"accuracy": score / 100, "accuracy_mismatched": 0.834}
        write_leaf(tmp_path / "a" / task, 0, task=task, metrics=metrics, main_metric="accuracy", baseline={})
    assert glue_average(summarise_run(tmp_path / "a")) == pytest.approx(79.6, abs=0.05)
    markdown = to_markdown([summarise_run(tmp_path / "a")])
    assert "GLUE average over the tasks above, without WNLI: a 79.6" in markdown
    assert glue_average(summarise_run(tmp_path / "a" / "rte")) is None


def test_a_pretraining_run_is_its_last_evaluation(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "eval_masked_accuracy": 0.1, "eval_masked_accuracy_baseline": 0.05},
        {
            "step": 2,
            "eval_masked_accuracy": 0.3,
            "eval_masked_accuracy_baseline": 0.06,
            "eval_masked_loss": 4.5,
        },
        {"step": 3, "loss": 4.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (one,) = summarise_run(tmp_path)
    assert one.mean == pytest.approx(30) and one.baseline == pytest.approx(6)
    assert one.others == {"masked_loss": 4.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "neither results.json nor metrics.jsonl"),
        ("{", "results.json: not the results of a run"),
        ('{"task": "x", "metrics": {}, "main_metric": "f1"}', "results.json: not the results of a run"),
        ("[]", "results.json: not the results of a run"),
    ],
)
def test_a_folder_without_sound_results_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        summarise_run(tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="no such folder"):
        summarise_run(tmp_path / "none")


def test_the_picture_grows_with_what_it_shows(run: Path, tmp_path: Path) -> None:
    write_leaf(tmp_path / "b", 0.5)
    draw_runs([summarise_run(tmp_path / "b")], tmp_path / "one.png")
    draw_runs([summarise_run(run), summarise_run(tmp_path / "b")], tmp_path / "two.png")
    small, large = (Image.open(tmp_path / name) for name in ("one.png", "two.png"))
    assert small.width == large.width == 1200 and small.height < large.height
    for image in (small, large):
        assert len(np.unique(np.asarray(image.convert("L")))) > 20  # not blank


def test_the_terminal_shows_a_line_for_each_metric(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_runs([run])
    shown = capsys.readouterr().out
    assert "45.0 ± 5.0" in shown and "matthews correlation" in shown and "accuracy" in shown
    assert max(map(len, shown.splitlines())) <= 80
