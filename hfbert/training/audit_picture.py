"""Turn lengths into a picture of histograms, one panel each.

{"tokens of a sentence": [12, 30, 7, ...]}  ->  audit.png
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hfbert.training.report import BLUE


def draw_lengths(lengths: Mapping[str, np.ndarray], path: Path) -> None:
    """A PNG with a histogram of each; the longest hundredth is gathered in the last bar."""
    figure = Figure(figsize=(12, 3.6), dpi=100, layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, len(lengths)), lengths.items(), strict=True):
        longest = max(1, int(np.quantile(values, 0.99))) if len(values) else 1
        width = -(-longest // 40)  # whole numbers a bar: else some bars hold one length more than others
        axes.hist(np.minimum(values, longest), bins=np.arange(0, longest + 2 * width, width), color=BLUE)
        axes.set_title(name, loc="left", fontsize=11, fontweight="bold")
        axes.set_xlabel(f"up to {longest:,.0f} (99 %)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png")
