"""Turn the numbers of a run into files and tables a person looks at.

{"step": 10, "loss": 6.3}  ->  a line of metrics.jsonl  ->  curves.png, and tables in the terminal
"""

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import font_manager, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Colours told apart with every common colour blindness (Okabe and Ito, 2008).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#444444"

_LOSSES = {
    "loss": ("total", GREY),
    "masked_loss": ("masked words", BLUE),
    "next_sentence_loss": ("next sentence", ORANGE),
    "eval_masked_loss": ("masked words, held out", BLUE),
    "eval_next_sentence_loss": ("next sentence, held out", ORANGE),
}
_ACCURACIES = {
    "masked_accuracy": ("masked words", BLUE),
    "next_sentence_accuracy": ("next sentence", ORANGE),
    "eval_masked_accuracy": ("masked words, held out", BLUE),
    "eval_next_sentence_accuracy": ("next sentence, held out", ORANGE),
}
_BASELINES = {
    "eval_masked_accuracy_baseline": ("masked words, baseline", BLUE),
    "eval_next_sentence_accuracy_baseline": ("next sentence, baseline", ORANGE),
}
# Fonts with Chinese characters, of which the first one installed joins the default font.
_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
)


class MetricsLog:
    """metrics.jsonl: one JSON object a line, on the disk as soon as it is written.

    log = MetricsLog(output_dir / "metrics.jsonl", resume_step=200)
    log.write({"step": 210, "loss": 5.1})
    """

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        """Start an empty file, or keep the lines up to `resume_step`, the checkpoint's step.

        Then the file is as an uninterrupted run left it at that step: later and cut-off lines are dropped.
        """
        self.path = path
        kept = (
            [] if resume_step is None else [row for row in read_metrics(path) if row["step"] <= resume_step]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text("".join(_to_line(row) for row in kept), encoding="utf-8")
        os.replace(unfinished, path)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row, which has a whole `step`; ValueError for NaN and infinities, which JSON has not."""
        assert type(row["step"]) is int, "a row of metrics needs a whole step"
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value} at step {row['step']}; try a lower --learning_rate")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_to_line(row))

    def read(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, without a last line cut short by a crash; none when there is no file.

    ValueError names the line when another one is damaged.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    # Whatever follows the last newline was cut short: each whole line ends in one.
    return [_from_line(line, f"{path}, line {number}") for number, line in enumerate(lines[:-1], start=1)]


def plot_curves(metrics: Sequence[Mapping[str, Any]], path: Path, title: str = "") -> None:
    """Draw losses, accuracies, learning rate and throughput over the steps into a 1200 x 800 PNG."""
    families = ["DejaVu Sans", *installed_chinese_font()]
    # A character no font has is drawn as a box; a warning in the terminal would not help anyone.
    with rc_context({"font.family": families, "font.size": 10}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure = Figure(figsize=(12, 8), dpi=100, layout="constrained")
        losses, accuracies, rate, speed = figure.subplots(2, 2).flat
        _draw_lines(losses, metrics, _LOSSES, "Loss")
        _draw_lines(accuracies, metrics, _ACCURACIES | _BASELINES, "Accuracy")
        _draw_lines(rate, metrics, {"learning_rate": ("learning rate", GREEN)}, "Learning rate")
        _draw_lines(speed, metrics, {"tokens_per_second": ("tokens per second", GREEN)}, "Tokens per second")
        _scale_axes(losses, accuracies, rate, speed, max((row["step"] for row in metrics), default=0))
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold")
        figure.savefig(path, format="png")


def results_table(
    results: Sequence[tuple[str, float, float | None]],
    facts: Mapping[str, str | int | float],
    title: str = "",
) -> Table:
    """A table of (metric, value, baseline or None), then facts about the run such as steps and minutes."""
    table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("baseline", justify="right")
    for name, value, baseline in results:
        shown = "" if baseline is None else f"{baseline:.3f}"
        table.add_row(Text(name), Text(f"{value:.3f}", style="bold"), Text(shown))
    table.add_section()
    for name, fact in facts.items():
        table.add_row(Text(name), Text(_format_fact(fact)), "")
    return table


def guesses_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Sentences beside the words masked in them and the model's likeliest guess for each, right or wrong.

    A row is {"text": "the [MASK] sat", "truths": ["cat"], "guesses": [[("dog", 0.4), ("cat", 0.3)]]}, with
    one list of (word, probability), likeliest first, for each masked word.
    """
    table = Table(
        title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left", show_lines=True
    )
    # The sentence gives way in a narrow terminal; the words in the other columns stay whole.
    table.add_column("sentence", ratio=1, overflow="fold")
    for heading in ("truth", "guess"):
        table.add_column(heading, no_wrap=True)
    table.add_column("prob.", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_row(_highlight_masks(row["text"]), *_guess_cells(row["truths"], row["guesses"]))
    return table


def render(table: Table, width: int = 100) -> str:
    """The table as plain text, for a file or a model card."""
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _to_line(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False) + "\n"


def _from_line(line: bytes, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if isinstance(row, dict) and type(row["step"]) is int:
            return row
    except (ValueError, KeyError):
        pass
    raise ValueError(f"{place}: not a row of metrics with a `step`; delete the line or the file")


def installed_chinese_font() -> list[str]:
    installed = set(font_manager.get_font_names())
    return [name for name in _CHINESE_FONTS if name in installed][:1]


def _draw_lines(
    axes: Axes, metrics: Sequence[Mapping[str, Any]], series: Mapping[str, tuple[str, str]], title: str
) -> None:
    for name, (label, colour) in series.items():
        points = [(row["step"], row[name]) for row in metrics if row.get(name) is not None]
        if points:
            steps, values = zip(*points, strict=True)
            axes.plot(steps, values, color=colour, label=label, **_line_style(name, len(points)))
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("step")
    axes.grid(True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.lines) > 1:
        # Below the panel: inside, six entries would hide a curve wherever they stood.
        axes.legend(
            fontsize=9,
            frameon=False,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            ncols=3,
            columnspacing=1.2,
        )
    if not axes.lines:
        axes.text(0.5, 0.5, "nothing logged", ha="center", va="center", transform=axes.transAxes, color=GREY)


def _line_style(name: str, num_points: int) -> dict[str, Any]:
    """Training thin and pale, held out strong with dots, baselines dashed; a lone point always as a dot."""
    if name.endswith("_baseline"):
        return {"linestyle": "--", "linewidth": 1.2, "marker": "_" if num_points == 1 else None}
    if name.startswith("eval_"):
        return {"linewidth": 2.0, "marker": "o", "markersize": 4.5}
    marker = {"marker": "o", "markersize": 3.0} if num_points == 1 else {}
    has_held_out = name not in ("learning_rate", "tokens_per_second", "loss")
    return {"linewidth": 1.2, "alpha": 0.55 if has_held_out else 1.0, **marker}


def _scale_axes(losses: Axes, accuracies: Axes, rate: Axes, speed: Axes, last_step: int) -> None:
    for axes in (losses, accuracies, rate, speed):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
        axes.set_xlim(0, 1.03 * max(last_step, 1))
        # Losses and rates are read against zero; matplotlib would cut the axis at the lowest point.
        axes.set_ylim(bottom=0)
    accuracies.set_ylim(0, 1)
    rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1e}" if value else "0"))
    speed.yaxis.set_major_formatter(EngFormatter(sep=""))


def _format_fact(fact: str | int | float) -> str:
    if isinstance(fact, int):
        return f"{fact:,}"
    return f"{fact:,.1f}" if isinstance(fact, float) else fact


def _highlight_masks(text: str) -> Text:
    # Text, never markup: rich would take "[MASK]" for a style and drop it.
    shown = Text(text)
    shown.highlight_words(["[MASK]"], style="bold reverse")
    return shown


def _guess_cells(truths: Sequence[str], guesses: Sequence[Sequence[tuple[str, float]]]) -> list[Text]:
    """Four cells with one line a masked word: truth, likeliest guess, its probability, right or wrong."""
    best = [ranked[0] for ranked in guesses]
    marks = [
        ("✓", "green") if truth == word else ("✗", "red")
        for truth, (word, _) in zip(truths, best, strict=True)
    ]
    return [
        Text("\n").join(Text(truth) for truth in truths),
        Text("\n").join(Text(word) for word, _ in best),
        Text("\n").join(Text(f"{probability:.2f}") for _, probability in best),
        Text("\n").join(Text(mark, style=colour) for mark, colour in marks),
    ]
