"""Turn the outputs of a pretraining model and their labels into losses and accuracies, as sums until the end.

masked loss 12.0 over 4 tokens, 3 of them right; pairs 1.4 over 2, 1 right
->  masked_loss 3.0, masked_accuracy 0.75, next_sentence_loss 0.7, next_sentence_accuracy 0.5, loss 3.7
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from accelerate.accelerator import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

IGNORED_LABEL = -100
SUMS = ("masked_loss", "masked_right", "masked", "pair_loss", "pairs_right", "pairs")


class PretrainingTask:
    """Masked LM and next sentence prediction (Devlin et al. 2018, section 3.1) for `TrainingLoop`."""

    def count_items(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the two losses are divided by, named as the model's arguments."""
        return {
            "num_items_in_batch": (batch["labels"] != IGNORED_LABEL).sum(),
            "num_pairs_in_batch": (batch["next_sentence_label"] != IGNORED_LABEL).sum(),
        }

    def measure(self, outputs: Any, batch: dict[str, Tensor], items: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums and counts over a batch of a model with `sparse_prediction`."""
        pair_logits, pair_labels = outputs.seq_relationship_logits.float(), batch["next_sentence_label"]
        pair_loss = F.cross_entropy(pair_logits, pair_labels, ignore_index=IGNORED_LABEL, reduction="sum")
        masked_loss = (outputs.loss - pair_loss / items["num_pairs_in_batch"]) * items["num_items_in_batch"]
        masked = batch["labels"][batch["labels"] != IGNORED_LABEL]  # (masked,)
        return {
            "masked_loss": masked_loss,
            "masked_right": (outputs.prediction_logits.argmax(-1) == masked).sum(),
            "masked": torch.tensor(len(masked), device=masked.device),
            "pair_loss": pair_loss,
            "pairs_right": (pair_logits.argmax(-1) == pair_labels).sum(),
            "pairs": (pair_labels != IGNORED_LABEL).sum(),
        }

    def summarise(self, sums: dict[str, float]) -> dict[str, float]:
        masked, pairs = max(sums["masked"], 1), max(sums["pairs"], 1)
        masked_loss, pair_loss = sums["masked_loss"] / masked, sums["pair_loss"] / pairs
        metrics = {
            "loss": masked_loss + pair_loss,
            "masked_loss": masked_loss,
            "masked_accuracy": sums["masked_right"] / masked,
        }
        if sums["pairs"]:
            metrics["next_sentence_loss"] = pair_loss
            metrics["next_sentence_accuracy"] = sums["pairs_right"] / pairs
        return metrics


def evaluate(
    accelerator: Accelerator, model: nn.Module, batches: Sequence[dict[str, Tensor]]
) -> dict[str, float]:
    """Losses and accuracies on held-out batches; each process measures its share, and no row twice."""
    task = PretrainingTask()
    model = accelerator.unwrap_model(model).eval()
    total = torch.zeros(len(SUMS), dtype=torch.float64, device=accelerator.device)
    for batch in batches[accelerator.process_index :: accelerator.num_processes]:
        batch = {name: value.to(accelerator.device) for name, value in batch.items()}
        items = {name: count.clamp(min=1) for name, count in task.count_items(batch).items()}
        with torch.no_grad(), accelerator.autocast():
            sums = task.measure(model(**batch, **items), batch, items)
        total += torch.stack([sums[name].double() for name in SUMS])
    total = accelerator.reduce(total, reduction="sum")
    return task.summarise(dict(zip(SUMS, total.tolist(), strict=True)))


def constant_baselines(batches: Iterable[dict[str, Tensor]]) -> dict[str, float]:
    """Accuracies of the best constant guesses: the most frequent masked token, the commoner pair label."""
    masked: list[Tensor] = []
    pairs: list[Tensor] = []
    for batch in batches:
        masked.append(batch["labels"][batch["labels"] != IGNORED_LABEL])
        pairs.append(batch["next_sentence_label"][batch["next_sentence_label"] != IGNORED_LABEL])
    names = ("masked_accuracy_baseline", "next_sentence_accuracy_baseline")
    shares = [_largest_share(torch.cat(labels)) for labels in (masked, pairs)]
    return {name: share for name, share in zip(names, shares, strict=True) if share is not None}


def _largest_share(labels: Tensor) -> float | None:
    return float(labels.bincount().max() / len(labels)) if len(labels) else None
