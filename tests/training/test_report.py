"""Numbers in; a log that reads back, curves that hold the points, tables that line up."""

import json
import math
import os
import subprocess
import sys
import warnings

import matplotlib.figure
import matplotlib.image
import pytest
from rich.cells import cell_len

from hfbert.training.report import (
    MetricsLog,
    guesses_table,
    plot_curves,
    read_metrics,
    render,
    results_table,
)


def training_row(step: int) -> dict[str, float]:
    return {
        "step": step,
        "loss": 8.0 - step / 100,
        "masked_loss": 7.3 - step / 100,
        "next_sentence_loss": 0.7,
        "masked_accuracy": step / 1000,
        "next_sentence_accuracy": 0.5,
        "learning_rate": 1e-3,
        "tokens_per_second": 20_000.0,
    }


def evaluation_row(step: int) -> dict[str, float]:
    return {
        "step": step,
        "eval_masked_loss": 7.0 - step / 100,
        "eval_masked_accuracy": step / 1000,
        "eval_next_sentence_accuracy": 0.6,
        "eval_masked_accuracy_baseline": 0.06,
        "eval_next_sentence_accuracy_baseline": 0.51,
    }


def test_what_is_logged_reads_back_one_object_a_line(tmp_path):
    log = MetricsLog(tmp_path / "运行" / "metrics.jsonl")
    rows = [training_row(10), evaluation_row(10) | {"note": "预训练"}]
    for row in rows:
        log.write(row)
        assert log.read()[-1] == row  # on the disk at once
    lines = log.path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows == read_metrics(log.path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_json_cannot_hold_is_refused_by_name_and_nothing_is_written(tmp_path, value):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match=r"masked_loss is .* at step 30"):
        log.write({"step": 30, "masked_loss": value})
    assert log.path.read_bytes() == b""


def test_a_resumed_log_is_as_the_uninterrupted_one(tmp_path):
    whole, cut = MetricsLog(tmp_path / "whole.jsonl"), MetricsLog(tmp_path / "cut.jsonl")
    for step in range(10, 60, 10):
        whole.write(training_row(step))
        cut.write(training_row(step) if step <= 30 else {"step": step, "loss": 99.0})
    with cut.path.open("a") as file:
        file.write('{"step": 60, "lo')  # the process was killed here
    resumed = MetricsLog(cut.path, resume_step=30)
    for step in (40, 50):
        resumed.write(training_row(step))
    assert cut.path.read_bytes() == whole.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.jsonl", "whole.jsonl"]


def test_a_new_run_starts_an_empty_log(tmp_path):
    MetricsLog(tmp_path / "metrics.jsonl").write(training_row(10))
    assert MetricsLog(tmp_path / "metrics.jsonl").read() == []
    assert MetricsLog(tmp_path / "other.jsonl", resume_step=5).read() == []
    assert read_metrics(tmp_path / "nowhere.jsonl") == []


@pytest.mark.parametrize("line", ["{", "[]", '{"loss": 1}', '{"step": "x"}', "\xff"])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: not a row"):
        read_metrics(path)


MANY = [row for step in range(10, 110, 10) for row in (training_row(step), evaluation_row(step))]
NO_EVALUATION = [training_row(step) for step in range(10, 110, 10)]
NO_NEXT_SENTENCE = [{name: value for name, value in row.items() if "next" not in name} for row in MANY]


@pytest.mark.parametrize(
    "metrics", [MANY, NO_EVALUATION, NO_NEXT_SENTENCE, [training_row(1)], [evaluation_row(1)], []]
)
def test_curves_are_drawn_without_a_warning_whatever_is_missing(tmp_path, metrics):
    path = tmp_path / "曲线.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_curves(metrics, path, title="预训练 tiny")
    height, width, _ = matplotlib.image.imread(path).shape
    assert (width, height) == (1200, 800)


def test_every_logged_number_is_a_point_of_the_curves(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    plot_curves(MANY, tmp_path / "curves.png")
    panels = {axes.get_title(loc="left"): axes for axes in drawn[0].axes}
    assert list(panels) == ["Loss", "Accuracy", "Learning rate", "Tokens per second"]
    lines = {
        (title, line.get_label()): list(zip(*line.get_data(), strict=True))
        for title, axes in panels.items()
        for line in axes.lines
    }
    expected = {
        ("Loss", "total"): "loss",
        ("Loss", "masked words"): "masked_loss",
        ("Loss", "next sentence"): "next_sentence_loss",
        ("Loss", "masked words, held out"): "eval_masked_loss",
        ("Accuracy", "masked words"): "masked_accuracy",
        ("Accuracy", "next sentence"): "next_sentence_accuracy",
        ("Accuracy", "masked words, held out"): "eval_masked_accuracy",
        ("Accuracy", "next sentence, held out"): "eval_next_sentence_accuracy",
        ("Accuracy", "masked words, baseline"): "eval_masked_accuracy_baseline",
        ("Accuracy", "next sentence, baseline"): "eval_next_sentence_accuracy_baseline",
        ("Learning rate", "learning rate"): "learning_rate",
        ("Tokens per second", "tokens per second"): "tokens_per_second",
    }
    assert lines == {
        place: [(row["step"], row[name]) for row in MANY if name in row] for place, name in expected.items()
    }


def test_curves_need_no_display_and_leave_the_callers_matplotlib_alone(tmp_path):
    code = (
        "import sys, matplotlib\n"
        "from pathlib import Path\n"
        "from hfbert.training.report import plot_curves\n"
        "plot_curves([{'step': 1, 'loss': 2.0}], Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    command = [sys.executable, "-c", code, str(tmp_path / "curves.png")]
    subprocess.run(command, check=True, env=environment, timeout=120)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_results_stand_beside_their_baselines_and_the_facts_below():
    shown = render(
        results_table(
            [("masked accuracy", 0.3124, 0.061), ("masked loss", 4.1, None)],
            {"steps": 1500, "minutes": 9.31, "device": "CPU [2 cores]"},
            title="运行 [one]",
        )
    )
    lines = [line.split() for line in shown.splitlines()]
    assert ["masked", "accuracy", "0.312", "0.061"] in lines
    assert ["masked", "loss", "4.100"] in lines
    assert ["steps", "1,500"] in lines and ["minutes", "9.3"] in lines
    assert "运行 [one]" in shown and "CPU [2 cores]" in shown


ROWS = [
    {
        "text": "the [MASK] sat on [red] [MASK] .",
        "truths": ["cat", "mats"],
        "guesses": [[("dog", 0.4)], [("mats", 1.0)]],
    },
    {"text": "今天[MASK]气很好。" * 12, "truths": ["天"], "guesses": [[("天", 0.912), ("空", 0.05)]]},
    {"text": "no brackets", "truths": ["[UNK]"], "guesses": [[("##ing", 0.004)]]},
]


def test_each_masked_word_has_its_truth_its_guess_and_its_mark():
    lines = [line.split() for line in render(guesses_table(ROWS), width=90).splitlines()]
    assert ["the", "[MASK]", "sat", "on", "[red]", "[MASK]", ".", "cat", "dog", "0.40", "✗"] in lines
    assert ["mats", "mats", "1.00", "✓"] in lines
    assert ["no", "brackets", "[UNK]", "##ing", "0.00", "✗"] in lines


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_line_up_under_wide_characters(width):
    lines = render(guesses_table(ROWS), width=width).splitlines()
    marked = [line for line in lines if line.endswith(("✓", "✗"))]
    assert len(marked) == 4
    assert len({cell_len(line) for line in marked}) == 1
    assert all(cell_len(line) <= width for line in lines)
    # Nothing of the long sentence is lost.
    assert sum(line.count("很") for line in lines) == 12


def test_a_long_guess_stays_whole():
    rows = [
        {"text": "a [MASK]", "truths": ["incomprehensibilities"], "guesses": [[("misunderstandings", 0.5)]]}
    ]
    shown = render(guesses_table(rows), width=70)
    assert "incomprehensibilities" in shown and "misunderstandings" in shown
