"""Metrics against their formulas and hand-worked examples, and over two processes against one."""

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import evaluate
import pytest
import torch

from hfbert.training.metrics import (
    AnswerMetric,
    ClassificationMetric,
    EntityMetric,
    GlueMetric,
    chinese_units,
    english_words,
)


def draw(count: int, values: int = 2) -> tuple[list[int], list[int]]:
    generator = random.Random(count)
    return tuple(generator.choices(range(values), k=count) for _ in range(2))  # type: ignore[return-value]


def test_accuracy_and_f1_are_their_counts() -> None:
    predictions, references = draw(200)
    pairs = list(zip(predictions, references, strict=True))
    hits, false, missed = (pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 1)))
    scores = GlueMetric("mrpc").compute(predictions=predictions, references=references)
    assert scores["accuracy"] == pytest.approx(sum(one == other for one, other in pairs) / 200, abs=1e-9)
    assert scores["f1"] == pytest.approx(2 * hits / (2 * hits + false + missed), abs=1e-9)


def test_macro_f1_is_the_mean_over_the_classes_that_occur() -> None:
    predictions, references = draw(200, values=4)
    pairs = list(zip(predictions, references, strict=True))
    each = []
    for kind in range(4):
        hits = pairs.count((kind, kind))
        each.append(2 * hits / (predictions.count(kind) + references.count(kind)))
    scores = ClassificationMetric().compute(predictions=predictions, references=references)
    assert scores["macro_f1"] == pytest.approx(sum(each) / 4, abs=1e-9)
    assert scores["accuracy"] == pytest.approx(sum(one == other for one, other in pairs) / 200, abs=1e-9)


def test_matthews_is_the_correlation_of_two_binary_rows() -> None:
    predictions, references = draw(300)
    scores = GlueMetric("cola").compute(predictions=predictions, references=references)
    rows = torch.tensor([predictions, references], dtype=torch.float64)
    assert scores["matthews_correlation"] == pytest.approx(float(torch.corrcoef(rows)[0, 1]), abs=1e-9)


def test_pearson_and_spearman_follow_their_formulas() -> None:
    generator = random.Random(0)
    references = [generator.uniform(0, 5) for _ in range(100)]
    predictions = [value + generator.gauss(0, 1) for value in references]
    scores = GlueMetric("stsb").compute(predictions=predictions, references=references)
    rows = torch.tensor([predictions, references], dtype=torch.float64)
    ranks = rows.argsort(1).argsort(1).double()
    assert scores["pearson"] == pytest.approx(float(torch.corrcoef(rows)[0, 1]), abs=1e-9)
    assert scores["spearmanr"] == pytest.approx(float(torch.corrcoef(ranks)[0, 1]), abs=1e-9)


@pytest.mark.parametrize("task", ["cola", "stsb"])
def test_a_correlation_with_a_constant_is_zero_not_nan(task: str) -> None:
    scores = GlueMetric(task).compute(predictions=[1, 1, 1], references=[0, 1, 1])
    assert all(score == 0 and not math.isnan(score) for score in scores.values())


def test_a_task_glue_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(ValueError, match="'squad' is not in GLUE: choose from cola"):
        GlueMetric("squad")


def test_entities_count_only_when_whole_and_of_the_right_type() -> None:
    references = [["B-人", "I-人", "O", "B-地"], ["O", "B-地", "I-地"]]
    predictions = [["B-人", "I-人", "O", "B-人"], ["O", "B-地", "O"]]
    scores = EntityMetric().compute(predictions=predictions, references=references)
    # Right: one 人. Wrong: a 人 where a 地 is, a 地 one character short. Missed: both 地.
    assert scores["overall_precision"] == pytest.approx(1 / 3, abs=1e-9)
    assert scores["overall_recall"] == pytest.approx(1 / 3, abs=1e-9)
    assert scores["overall_accuracy"] == pytest.approx(5 / 7, abs=1e-9)
    assert scores["人"] == pytest.approx(
        {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "number": 1}, abs=1e-9
    )
    assert scores["地"]["f1"] == 0 and scores["地"]["number"] == 2


@pytest.mark.parametrize("predictions", [[["O", "O"]], [["O", "B-X"]]])
def test_entities_without_any_in_the_gold_give_numbers(predictions: list[list[str]]) -> None:
    scores = EntityMetric().compute(predictions=predictions, references=[["O", "O"]])
    assert scores["overall_f1"] == 0


def test_english_answers_are_compared_without_case_articles_and_punctuation() -> None:
    assert english_words("The  Cat, a dog!") == ["cat", "dog"]
    predictions = [
        {"id": "1", "prediction_text": "the black cat"},
        {"id": "2", "prediction_text": "An Apple."},
    ]
    references = [{"id": "1", "answers": ["cat", "a white cat"]}, {"id": "2", "answers": ["apple"]}]
    scores = AnswerMetric().compute(predictions=predictions, references=references)
    assert scores == pytest.approx({"exact_match": 50.0, "f1": 100 * (2 / 3 + 1) / 2}, abs=1e-9)


def test_no_answer_is_right_only_where_there_is_none() -> None:
    predictions = [
        {"id": str(number), "prediction_text": text} for number, text in enumerate(["", "", "yes"])
    ]
    references = [{"id": str(number), "answers": texts} for number, texts in enumerate([[], ["yes"], []])]
    scores = AnswerMetric().compute(predictions=predictions, references=references)
    assert scores == pytest.approx({"exact_match": 100 / 3, "f1": 100 / 3}, abs=1e-9)


def test_chinese_answers_are_compared_by_their_longest_common_run_of_characters() -> None:
    assert chinese_units("用iPhone15拍照。") == ["用", "iphone15", "拍", "照"]
    predictions = [{"id": "1", "prediction_text": "在北京，大学"}, {"id": "2", "prediction_text": "三月"}]
    references = [{"id": "1", "answers": ["北京的大学", "北京大学"]}, {"id": "2", "answers": ["三月。"]}]
    scores = AnswerMetric("zh").compute(predictions=predictions, references=references)
    # 在北京大学 and 北京大学 share a run of 4 of 5 and 4 characters.
    assert scores == pytest.approx({"exact_match": 50.0, "f1": 100 * (8 / 9 + 1) / 2}, abs=1e-9)


def test_a_question_without_a_prediction_is_named() -> None:
    with pytest.raises(ValueError, match="1 questions have no prediction, the first is 'q'"):
        predictions = [{"id": "other", "prediction_text": ""}]
        AnswerMetric().compute(predictions=predictions, references=[{"id": "q", "answers": []}])


def test_metrics_can_be_fed_in_batches_and_combined() -> None:
    predictions, references = draw(50)
    combined = evaluate.combine({"one": GlueMetric("rte"), "two": GlueMetric("mrpc")}, force_prefix=True)
    for start in range(0, 50, 7):
        combined.add_batch(
            predictions=predictions[start : start + 7], references=references[start : start + 7]
        )
    whole = GlueMetric("mrpc").compute(predictions=predictions, references=references)
    scores = combined.compute()
    assert (
        scores["two_f1"] == whole["f1"]
        and scores["one_accuracy"] == scores["two_accuracy"] == whole["accuracy"]
    )


TWO_PROCESSES = """
import random, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from hfbert.training.metrics import GlueMetric

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
for size in range(1, 34):
    generator = random.Random(size)
    rows = [(number, generator.randrange(2), generator.randrange(2)) for number in range(size)]
    metric, seen = GlueMetric("mrpc"), []
    for number, guess, truth in accelerator.prepare(DataLoader(rows, batch_size=4)):
        number, guess, truth = accelerator.gather_for_metrics((number, guess, truth))
        seen += number.tolist()
        metric.add_batch(predictions=guess, references=truth)
    assert seen == list(range(size)), (size, seen)
    guesses, truths = [row[1] for row in rows], [row[2] for row in rows]
    alone = GlueMetric("mrpc").compute(predictions=guesses, references=truths)
    assert metric.compute() == alone, size
"""


@pytest.mark.slow
def test_two_processes_count_every_row_once_for_every_size(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TWO_PROCESSES)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        str(tmp_path / "script.py"),
    ]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
