"""Turn summaries of runs into one picture: bars of all scores, confusion matrices, F1 by type of entity.

[[Summary(run="a", task="cola", scores=(31.2, 32.6), ...)], [Summary(run="b", ...)]]  ->  comparison.png
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hfbert.training.comparison import PUBLISHED, Summary
from hfbert.training.report import BLUE, GREEN, GREY, ORANGE, installed_chinese_font

_COLOURS = (BLUE, ORANGE, GREEN, GREY, "#CC79A7", "#E69F00", "#56B4E9")


def draw_runs(runs: Sequence[Sequence[Summary]], path: Path) -> None:
    """A PNG: the scores of all tasks and runs as bars, then confusion matrices and F1 by type of entity."""
    summaries = [one for run in runs for one in run]
    panels = [one for one in summaries if one.confusion is not None or one.types]
    num_rows = -(-len(panels) // 3)
    families = ["DejaVu Sans", *installed_chinese_font()]
    # A character no font has is drawn as a box; a warning in the terminal would not help anyone.
    with rc_context({"font.family": families, "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure = Figure(figsize=(12, 3.6 + 3.6 * num_rows), dpi=100, layout="constrained")
        grid = figure.add_gridspec(1 + num_rows, 3)
        _draw_scores(figure.add_subplot(grid[0, :]), runs)
        for number, one in enumerate(panels):
            axes = figure.add_subplot(grid[1 + number // 3, number % 3])
            axes.set_title(f"{one.run}: {one.task}", loc="left", fontsize=10, fontweight="bold")
            if one.confusion is not None:
                _draw_confusion(axes, *one.confusion)
            else:
                _draw_types(axes, one.types)
        figure.savefig(path, format="png")


def _draw_scores(axes: Axes, runs: Sequence[Sequence[Summary]]) -> None:
    tasks = list(dict.fromkeys(one.task for run in runs for one in run))
    width = 0.8 / len(runs)
    for number, run in enumerate(runs):
        for one in run:
            place = tasks.index(one.task) + (number - (len(runs) - 1) / 2) * width
            colour = _COLOURS[number % len(_COLOURS)]
            is_first = one is run[0]
            axes.bar(place, one.mean, 0.92 * width, color=colour, label=one.run if is_first else None)
            if one.deviation is not None:
                axes.errorbar(place, one.mean, one.deviation, color="black", capsize=3, linewidth=1)
            if one.baseline is not None:
                axes.hlines(one.baseline, place - width / 2, place + width / 2, color="black", linestyle=":")
            _annotate(axes, one.mean, (place, one.mean), (0, 4), ha="center")
    for task in tasks:
        if task in PUBLISHED:
            place = tasks.index(task)
            axes.hlines(PUBLISHED[task], place - 0.45, place + 0.45, color=GREY, linestyle="--", linewidth=1)
    axes.set_xticks(range(len(tasks)), tasks)
    axes.set_xlim(-0.6, len(tasks) - 0.4)
    axes.set_ylim(0, 105)
    axes.set_title(
        "Scores in percent (dotted: baseline; dashed: BERT-base as published)", loc="left", fontsize=10
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_confusion(axes: Axes, labels: Sequence[str], counts: np.ndarray) -> None:
    """Shares of each true label, and the counts as text while they can be read."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(labels) <= 8:
        for truth, guess in np.ndindex(counts.shape):
            colour = "white" if shares[truth, guess] > 0.6 else "black"
            axes.text(guess, truth, f"{counts[truth, guess]:,}", ha="center", va="center", color=colour)
    shown = [label if len(label) < 16 else label[:15] + "…" for label in labels]
    axes.set_xticks(range(len(labels)), shown, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), shown)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")


def _draw_types(axes: Axes, types: dict[str, float]) -> None:
    names = list(types)[::-1]
    axes.barh(names, [types[name] for name in names], color=BLUE)
    for place, name in enumerate(names):
        _annotate(axes, types[name], (types[name], place), (3, 0), va="center")
    axes.set_xlim(0, 112)
    axes.set_xlabel("F1")
    axes.spines[["top", "right"]].set_visible(False)


def _annotate(
    axes: Axes, value: float, place: tuple[float, float], shift: tuple[int, int], **kind: Any
) -> None:
    axes.annotate(f"{value:.1f}", place, shift, textcoords="offset points", **kind)
