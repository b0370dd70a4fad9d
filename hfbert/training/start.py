"""Turn the name or folder of a BERT into a model with the head and the labels that a task needs.

runs/tiny/model, names ("O", "B-PER", "I-PER")  ->  a token classifier of three labels, its head still random
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn


def load_config(head: Any, name_or_path: str, **changes: Any) -> Any:
    """The configuration a model would have; ValueError in one line when there is none to be read."""
    try:
        return head.config_class.from_pretrained(name_or_path, **changes)
    except Exception as error:  # a missing name and a broken file raise different types in every version
        raise _cannot_load(name_or_path, error) from None


def known_labels(head: Any, name_or_path: str) -> dict[int, str] | None:
    """The labels of a checkpoint that has this very head and names them; None for any other."""
    config = load_config(head, name_or_path)
    kind = head.__name__.rpartition("For")[2]
    has_head = any(name.endswith(f"For{kind}") for name in config.architectures or [])
    is_named = any(not str(name).startswith("LABEL_") for name in config.id2label.values())
    return dict(config.id2label) if has_head and is_named else None


def find_max_length(head: Any, name_or_path: str, max_length: int | None) -> int:
    """The most positions of a row: as asked, else as many as the model has; ValueError for more than that."""
    limit = load_config(head, name_or_path).max_position_embeddings
    if max_length is not None and max_length > limit:
        raise ValueError(f"--max_length {max_length} is more than the {limit} positions of {name_or_path}")
    return max_length or limit


def load_head(
    head: Any,
    name_or_path: str,
    names: Sequence[str] = (),
    *,
    random_weights: bool = False,
    needs_head: bool = False,
    **changes: Any,
) -> nn.Module:
    """A model of class `head` in float32, with `names` as its labels where there are any.

    A head that was trained for other labels starts anew, as does one that is not there; with `needs_head`
    both are ValueErrors. `changes` go into the configuration.
    """
    if names:
        changes |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    config = load_config(head, name_or_path, **changes)
    if random_weights:
        return head(config)
    try:
        model, report = head.from_pretrained(
            name_or_path,
            config=config,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise _cannot_load(name_or_path, error) from None
    known = known_labels(head, name_or_path)
    is_foreign = bool(names) and known is not None and _lower(known.values()) != _lower(names)
    # Mismatched keys come with their two shapes.
    absent = {*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}
    lacks_head = any(not _is_encoder(key) for key in absent)
    if needs_head and (is_foreign or lacks_head):
        raise ValueError(f"--model_name_or_path {name_or_path} has no head for this task: train it first")
    if is_foreign:
        nn.init.normal_(model.classifier.weight, std=config.initializer_range)
        nn.init.zeros_(model.classifier.bias)
    return model


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _is_encoder(key: str) -> bool:
    return "embeddings." in key or "encoder." in key or "pooler." in key


def _cannot_load(name_or_path: str, error: Exception) -> ValueError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:140]
    return ValueError(
        f"--model_name_or_path {name_or_path} cannot be loaded ({reason}); name a model on the Hub, or a "
        "folder such as runs/tiny/model"
    )
