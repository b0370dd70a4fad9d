"""Turn options about layers into a model of which parts are frozen, start anew or learn more slowly.

12 layers, freeze_layers 10, layerwise_lr_decay 0.5
    ->  layers 0-9 stay as they are, layer 10 learns at half the rate, layer 11 and the head at all of it
"""

import re
from dataclasses import dataclass

from torch import nn

_LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")
_POOLER = re.compile(r"(?:^|\.)pooler\.")


@dataclass(kw_only=True)
class LayerOptions:
    """How the layers take part in fine-tuning; by default all of them, alike."""

    freeze_layers: int = 0  # this many layers, from the first, keep their weights
    freeze_embeddings: bool = False  # the embeddings keep their weights
    layerwise_lr_decay: float = 1.0  # a layer learns at this share of the rate of the one above it
    reinit_layers: int = 0  # this many layers, from the last, and the pooler start from random weights

    def __post_init__(self) -> None:
        for name in ("freeze_layers", "reinit_layers"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or more")
        if not 0 < self.layerwise_lr_decay <= 1:
            raise ValueError(f"layerwise_lr_decay={self.layerwise_lr_decay} must be above 0 and at most 1")


def prepare_layers(model: nn.Module, options: LayerOptions, initializer_range: float) -> list[str]:
    """Freeze and start anew as asked; lines to print to the user.

    Layers are known by their names in BERT, `encoder.layer.0` and so on. ValueError for more layers than
    there are. Why to start some anew: Zhang et al. 2021, "Revisiting Few-sample BERT Fine-tuning".
    """
    num_layers = count_layers(model)
    for name in ("freeze_layers", "reinit_layers"):
        if getattr(options, name) > num_layers:
            raise ValueError(f"--{name} {getattr(options, name)}: the model has {num_layers} layers")
    if options.reinit_layers:
        _start_anew(model, num_layers - options.reinit_layers, initializer_range)
    for name, parameter in model.named_parameters():
        place = depth(name, num_layers)
        is_frozen = options.freeze_embeddings if place == 0 else 0 < place <= options.freeze_layers
        parameter.requires_grad_(not is_frozen)
    return _describe(model, options, num_layers)


def rate_factors(model: nn.Module, layerwise_lr_decay: float) -> dict[str, float]:
    """The share of the learning rate of each parameter: 1 for the head and the last layer, then falling."""
    num_layers = count_layers(model)
    return {
        name: layerwise_lr_decay ** max(0, num_layers - depth(name, num_layers))
        for name, _ in model.named_parameters()
    }


def count_layers(model: nn.Module) -> int:
    return len({found[1] for name, _ in model.named_parameters() if (found := _LAYER.search(name))})


def depth(name: str, num_layers: int) -> int:
    """0 for the embeddings, 1 for the first layer, one more than there are layers for pooler and heads."""
    found = _LAYER.search(name)
    if found:
        return int(found[1]) + 1
    return 0 if "embeddings." in name else num_layers + 1


def _start_anew(model: nn.Module, first: int, initializer_range: float) -> None:
    for name, module in model.named_modules():
        found = _LAYER.search(f"{name}.")
        if not (found and int(found[1]) >= first) and not _POOLER.search(f"{name}."):
            continue
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=initializer_range)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()


def _describe(model: nn.Module, options: LayerOptions, num_layers: int) -> list[str]:
    counts = {True: 0, False: 0}
    for parameter in model.parameters():
        counts[parameter.requires_grad] += parameter.numel()
    if not counts[False]:
        return []
    lines = [f"frozen: {counts[False]:,} of {sum(counts.values()):,} parameters"]
    if options.freeze_layers == num_layers and options.freeze_embeddings:
        lines.append(
            "warning: only the head learns, which costs accuracy on most tasks (Devlin et al. 2018, section "
            "5.3); lower --freeze_layers"
        )
    return lines
