"""Turn the results of any number of runs into one table, with the spread over seeds.

runs/a/cola/lr-2e-05-seed-42/results.json, runs/a/cola/lr-2e-05-seed-43/results.json, runs/b ...
    ->  | a | cola | 2e-05 | 2 | matthews correlation | 31.2 ± 1.4 | 32.2 | ...
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hfbert.training.report import read_metrics

# What BERT-base is printed with (Devlin et al. 2018): GLUE on its test sets (table 1), the others on dev sets
# (tables 2, 4 and 5; CoNLL-2003 fine-tuned). Ours are dev scores throughout.
PUBLISHED = {
    "mnli": 84.6,
    "qqp": 71.2,
    "qnli": 90.5,
    "sst2": 93.5,
    "cola": 52.1,
    "stsb": 85.8,
    "mrpc": 88.9,
    "rte": 66.4,
    "squad": 88.5,
    "swag": 81.6,
    "conll2003": 96.4,
}
GLUE = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")  # WNLI left out, as the paper does
_COLUMNS = (
    *("run", "task", "start", "rate", "seeds", "metric", "mean", "best", "baseline"),
    *("published", "difference", "other metrics", "minutes"),
)


@dataclass(frozen=True)
class Summary:
    """One task of one run at its best learning rate; scores in percent, one for each seed."""

    run: str
    task: str
    start: str
    rate: float | None
    metric: str
    scores: tuple[float, ...]
    others: dict[str, float]
    baseline: float | None
    seconds: float
    confusion: tuple[list[str], np.ndarray] | None  # labels, counts summed over seeds: rows are the truth
    types: dict[str, float]  # F1 of each type of entity

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)

    @property
    def deviation(self) -> float | None:
        """Of a sample, so with n - 1; None for one seed."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def published(self) -> float | None:
        return PUBLISHED.get(self.task)


def summarise_run(folder: Path) -> list[Summary]:
    """The tasks of a run, from every results.json in it or below; a pretraining run has metrics.jsonl alone.

    ValueError for a folder with neither, or a damaged file.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; name the output_dir of a run")
    paths = sorted(folder.rglob("results.json"))
    results = [_read_json(path) for path in paths]
    if not results:
        results = [_pretraining_result(folder)]
    tasks: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        tasks.setdefault(result["task"], []).append(result)
    return [_summarise(folder.resolve().name, task, own) for task, own in tasks.items()]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        result["metrics"][result["main_metric"]], result["task"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = " ".join(str(error).split())[:80]
        raise ValueError(f"{path}: not the results of a run ({reason}); delete it and run again") from None
    return result


def _pretraining_result(folder: Path) -> dict[str, Any]:
    rows = read_metrics(folder / "metrics.jsonl")
    last = next((row for row in reversed(rows) if "eval_masked_accuracy" in row), None)
    if last is None:
        raise ValueError(
            f"{folder}: neither results.json nor metrics.jsonl with an evaluation in it or below"
        )
    metrics = {name.removeprefix("eval_"): value for name, value in last.items() if name.startswith("eval_")}
    baseline = {
        name.removesuffix("_baseline"): metrics.pop(name)
        for name in list(metrics)
        if name.endswith("_baseline")
    }
    return {
        "task": "pretraining",
        "model": "",
        "metrics": metrics,
        "main_metric": "masked_accuracy",
        "baseline": baseline,
        "seconds": 0.0,
    }


def _summarise(run: str, task: str, results: list[dict[str, Any]]) -> Summary:
    """The results of one task at the rate with the best mean score."""
    by_rate: dict[float | None, list[dict[str, Any]]] = {}
    for result in results:
        by_rate.setdefault(result.get("learning_rate"), []).append(result)
    name = results[0]["main_metric"]
    rate, own = max(
        by_rate.items(), key=lambda item: statistics.mean(result["metrics"][name] for result in item[1])
    )
    baseline = own[0].get("baseline", {}).get(name)
    types: dict[str, list[float]] = {}
    for result in own:
        for kind, scores in result.get("types", {}).items():
            types.setdefault(kind, []).append(100 * scores["f1"])
    return Summary(
        run=run,
        task=task,
        start=own[0].get("model", ""),
        rate=rate,
        metric=name,
        scores=tuple(_percent(result, name) for result in own),
        others={
            other: statistics.mean(_percent(result, other) for result in own)
            for other in own[0]["metrics"]
            if other != name
        },
        baseline=None if baseline is None else _percent(own[0] | {"metrics": {name: baseline}}, name),
        seconds=statistics.mean(result.get("seconds", 0.0) for result in own),
        confusion=_add_confusions(own),
        types={kind: statistics.mean(scores) for kind, scores in types.items()},
    )


def _percent(result: dict[str, Any], name: str) -> float:
    """Scores of SQuAD are percent already, losses are no shares."""
    is_share = result.get("recipe") != "squad" and "loss" not in name
    return float(result["metrics"][name]) * (100 if is_share else 1)


def _add_confusions(results: list[dict[str, Any]]) -> tuple[list[str], np.ndarray] | None:
    found = [result["confusion"] for result in results if "confusion" in result]
    return (found[0]["labels"], np.sum([one["matrix"] for one in found], axis=0)) if found else None


def glue_average(summaries: Sequence[Summary]) -> float | None:
    """The mean over GLUE's tasks as in the paper's table 1, both parts of MNLI counted; None for one task."""
    own = [summary for summary in summaries if summary.task in GLUE]
    if len(own) < 2:
        return None
    scores = [summary.mean for summary in own]
    scores += [summary.others["accuracy_mismatched"] for summary in own if summary.task == "mnli"]
    return statistics.mean(scores)


def to_row(one: Summary) -> list[str]:
    """The cells of one task of one run."""
    return [
        one.run,
        one.task,
        one.start,
        "" if one.rate is None else f"{one.rate:g}",
        str(len(one.scores)),
        one.metric.replace("_", " "),
        f"{one.mean:.1f}" + ("" if one.deviation is None else f" ± {one.deviation:.1f}"),
        f"{max(one.scores):.1f}",
        "" if one.baseline is None else f"{one.baseline:.1f}",
        "" if one.published is None else f"{one.published:.1f}",
        "" if one.published is None else f"{one.mean - one.published:+.1f}",
        ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in one.others.items()),
        f"{one.seconds / 60:.1f}",
    ]


def to_markdown(runs: Sequence[Sequence[Summary]]) -> str:
    """Tables of all runs: each task by itself and, for several runs, the runs side by side."""
    parts = [_markdown_table(_COLUMNS, [to_row(one) for run in runs for one in run])]
    notes = ["Scores in percent: the mean over seeds, and their standard deviation (n - 1)."]
    if any(one.published is not None for run in runs for one in run):
        notes.append(
            "Published: BERT-base; GLUE on its test sets, the others on dev sets. Ours are dev scores."
        )
    if len(runs) > 1:
        parts.append(_side_by_side(runs))
    averages = {run[0].run: average for run in runs if (average := glue_average(run)) is not None}
    if averages:
        told = ", ".join(f"{name} {average:.1f}" for name, average in averages.items())
        notes.append(f"GLUE average over the tasks above, without WNLI: {told}.")
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def _side_by_side(runs: Sequence[Sequence[Summary]]) -> str:
    tasks = list(dict.fromkeys(one.task for run in runs for one in run))
    scores = [{one.task: one.mean for one in run} for run in runs]
    rows = []
    for task in tasks:
        first = scores[0].get(task)
        cells = [task]
        for number, own in enumerate(scores):
            cell = f"{own[task]:.1f}" if task in own else ""
            if number and cell and first is not None:
                cell += f" ({own[task] - first:+.1f})"
            cells.append(cell)
        rows.append(cells)
    return _markdown_table(["task", *(run[0].run for run in runs)], rows)


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def show_runs(folders: Sequence[Path]) -> None:
    """Print the scores to the terminal, a line for each metric."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    columns = ("task", "metric", "mean", "best", "baseline", "seeds", "minutes")
    table.add_column("task", max_width=18, no_wrap=True)  # a long name gives way, not the scores
    for column in columns[1:]:
        table.add_column(column, justify="left" if column == "metric" else "right", no_wrap=True)
    runs = [summarise_run(folder) for folder in folders]
    for one in (one for run in runs for one in run):
        row = dict(zip(_COLUMNS, to_row(one), strict=True))
        table.add_row(*(Text(row[column]) for column in columns))
        for name, value in one.others.items():
            table.add_row("", Text(name.replace("_", " ")), f"{value:.1f}")
    Console().print(table)
    for run in runs:
        if (average := glue_average(run)) is not None:
            Console().print(f"GLUE average over these tasks, without WNLI: {average:.1f}")
