"""Turn feature rows of different lengths into a padded batch.

{"input_ids": [2, 7, 3], "labels": 1}, {"input_ids": [2, 3], "labels": 0}
    ->  input_ids [[2, 7, 3], [2, 3, 0]], attention_mask [[1, 1, 1], [1, 1, 0]], labels [1, 0]
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# B rows, C choices of a row, S positions
IGNORED_LABEL = -100
SEQUENCES = ("input_ids", "token_type_ids")


class FeatureRows:
    """Features as a map-style data set, the same in every epoch."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.rows[number]

    def set_epoch(self, epoch: int) -> None:
        """Nothing is drawn: a row is the same in every epoch."""


class FeatureCollator:
    """Pad `input_ids`, `token_type_ids` and labels of tokens to the longest row, and tell where it is real.

    A row's `input_ids` are (S,), or (C, S) for C choices: then so is all that is padded. `labels` may be one
    number a row or one a position. Other columns, but for positions of answers, stay out.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def set_epoch(self, epoch: int) -> None:
        """Nothing is drawn."""

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        is_choice = isinstance(rows[0]["input_ids"][0], list)
        batch = {name: _pad_all(rows, name, self.pad_token_id, is_choice) for name in SEQUENCES}
        lengths = torch.tensor([[len(ids) for ids in _choices(row["input_ids"], is_choice)] for row in rows])
        places = torch.arange(batch["input_ids"].shape[-1])
        mask = (places < lengths[..., None]).long()  # (B, C, S)
        batch["attention_mask"] = mask if is_choice else mask.squeeze(1)
        for name in ("labels", "start_positions", "end_positions"):
            if name in rows[0]:
                is_sequence = isinstance(rows[0][name], list)
                values = [row[name] for row in rows]
                batch[name] = (
                    _pad_all(rows, name, IGNORED_LABEL, False) if is_sequence else torch.tensor(values)
                )
        return batch


def length_of(row: dict[str, Any]) -> int:
    """Positions of a row, of its longest choice if it has choices."""
    ids = row["input_ids"]
    return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def _choices(values: Any, is_choice: bool) -> list[list[int]]:
    return values if is_choice else [values]


def _pad_all(rows: Sequence[dict[str, Any]], name: str, padding: int, is_choice: bool) -> Tensor:
    padding = 0 if name == "token_type_ids" else padding
    width = max(map(length_of, rows))
    padded = [
        [values + [padding] * (width - len(values)) for values in _choices(row[name], is_choice)]
        for row in rows
    ]
    tensor = torch.tensor(padded)  # (B, C, S)
    return tensor if is_choice else tensor.squeeze(1)
