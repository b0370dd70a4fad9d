"""Turn a model and feature rows into the model's numbers for every row, in the rows' order, on any processes.

rows of 9, 30 and 12 positions  ->  batches of neighbours in length  ->  [(logits,), (logits,), (logits,)]
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.accelerator import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

Collate = Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]
# Predictions do not look at what they are measured by.
_TARGETS = ("labels", "start_positions", "end_positions")


def predict_rows(
    accelerator: Accelerator,
    model: nn.Module,
    rows: Sequence[dict[str, Any]],
    collate: Collate,
    batch_size: int,
    outputs: Sequence[str] = ("logits",),
) -> list[tuple[np.ndarray, ...]]:
    """The named outputs of the model for each row, as float32 arrays; all processes get all of them.

    `collate` makes a batch of tensors from rows with "input_ids". Outputs of positions have as many as the
    longest row of the batch had: cut them to the row's own length.
    """
    order = sorted(range(len(rows)), key=lambda number: _length(rows[number]))  # less padding
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    model = accelerator.unwrap_model(model).eval()
    own: list[tuple[int, tuple[np.ndarray, ...]]] = []
    for numbers in batches[accelerator.process_index :: accelerator.num_processes]:
        batch = {
            name: value.to(accelerator.device)
            for name, value in collate([rows[number] for number in numbers]).items()
            if name not in _TARGETS
        }
        with torch.no_grad(), accelerator.autocast():
            found = model(**batch)
        arrays = [getattr(found, name).float().cpu().numpy() for name in outputs]
        own += zip(numbers, zip(*arrays, strict=True), strict=True)
    everything = dict(gather_object(own))
    return [everything[number] for number in range(len(rows))]


def _length(row: dict[str, Any]) -> int:
    ids = row["input_ids"]
    return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)
