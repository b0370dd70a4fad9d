"""Turn a model and its options into an optimizer and a learning-rate schedule.

rate 4e-4, warmup_ratio 0.1, max_steps 100: step 0 -> 0, 5 -> 2e-4, 10 -> 4e-4, 55 -> 2e-4, 100 -> 0
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from hfbert.training.optimizers import Lamb


@dataclass(kw_only=True)
class OptimOptions:
    """How the weights move; the defaults are the paper's (Devlin et al. 2018, appendix A.2)."""

    learning_rate: float  # peak learning rate
    weight_decay: float = 0.01  # decoupled decay of weights, never of biases and LayerNorm
    adam_beta1: float = 0.9  # decay of the running mean of gradients
    adam_beta2: float = 0.999  # decay of the running mean of squared gradients
    adam_epsilon: float = 1e-6  # added to the denominator of the update
    max_grad_norm: float = 1.0  # gradients are scaled down to this norm; 0 turns clipping off
    optim: Literal["adamw", "adamw_bert", "lamb"] = "adamw"  # "adamw_bert": without bias correction
    warmup_ratio: float = 0.0  # share of the run in which the rate rises from 0 to its peak
    # what follows the warm-up: a fall to 0, the peak, or the peak and a fall in the last decay_ratio
    lr_scheduler_type: Literal["linear", "constant_with_warmup", "warmup_stable_decay"] = "linear"
    decay_ratio: float = 0.1  # share of the run in which warmup_stable_decay falls to 0

    def __post_init__(self) -> None:
        _require(0 < self.learning_rate < math.inf, "learning_rate", self.learning_rate, "above 0")
        _require(0 <= self.weight_decay < math.inf, "weight_decay", self.weight_decay, "0 or more")
        _require(0 <= self.adam_beta1 < 1, "adam_beta1", self.adam_beta1, "in [0, 1)")
        _require(0 <= self.adam_beta2 < 1, "adam_beta2", self.adam_beta2, "in [0, 1)")
        _require(0 < self.adam_epsilon < math.inf, "adam_epsilon", self.adam_epsilon, "above 0")
        _require(0 <= self.max_grad_norm < math.inf, "max_grad_norm", self.max_grad_norm, "0 or more")
        _require(0 <= self.warmup_ratio <= 1, "warmup_ratio", self.warmup_ratio, "in [0, 1]")
        _require(0 < self.decay_ratio <= 1, "decay_ratio", self.decay_ratio, "in (0, 1]")
        if self.lr_scheduler_type == "warmup_stable_decay" and self.warmup_ratio + self.decay_ratio > 1:
            both = f"warmup_ratio={self.warmup_ratio} and decay_ratio={self.decay_ratio}"
            raise ValueError(f"{both} are more than the whole run: lower one of them")


def _require(holds: bool, name: str, value: float, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{name}={value} must be {wanted}")


def parameter_groups(
    model: nn.Module, weight_decay: float, rate_factors: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Weights with decay, biases and LayerNorm without; tied parameters once, frozen ones not at all.

    `rate_factors` gives parameters by name a share of the learning rate, 1 for those it does not name; those
    of one share and one decay form a group. Within it the order is that of `named_parameters()`, so that a
    saved optimizer state fits the rebuilt optimizer.
    """
    norms = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.LayerNorm)
        for parameter in module.parameters(recurse=False)
    }
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_decayed = name.rpartition(".")[2] != "bias" and id(parameter) not in norms
            factor = (rate_factors or {}).get(name, 1.0)
            groups.setdefault((factor, is_decayed), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if is_decayed else 0.0, "rate_factor": factor}
        for (factor, is_decayed), parameters in sorted(groups.items(), key=lambda item: item[0], reverse=True)
    ]


def build_optimizer(
    model: nn.Module, options: OptimOptions, rate_factors: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimizer over `parameter_groups`; AdamW fused where torch has the kernel.

    ValueError when nothing is trainable.
    """
    groups = parameter_groups(model, options.weight_decay, rate_factors)
    if not groups:
        raise ValueError("the model has no trainable parameter; set requires_grad on some")
    rate, betas = options.learning_rate, (options.adam_beta1, options.adam_beta2)
    if options.optim != "adamw":
        is_lamb = options.optim == "lamb"
        return Lamb(groups, rate, betas, options.adam_epsilon, trust=is_lamb, bias_correction=is_lamb)
    return torch.optim.AdamW(
        groups,
        lr=rate,
        betas=betas,
        eps=options.adam_epsilon,
        fused=all(_has_fused_kernel(parameter) for group in groups for parameter in group["params"]),
    )


def _has_fused_kernel(parameter: nn.Parameter) -> bool:
    return parameter.device.type in ("cpu", "cuda") and parameter.is_floating_point()


def linear_factor(position: float, warmup: float, total: float) -> float:
    """Rise from 0 to 1 over `warmup`, then fall to 0 at `total`; all three in steps, or all in seconds."""
    if position < warmup:
        return position / warmup
    if position >= total:
        return 0.0
    return (total - position) / (total - warmup)


class Schedule:
    """The learning rate and the end of a run, laid over steps or over seconds of training.

    schedule = Schedule(options, max_steps=1000)
    while not schedule.finished(step, elapsed_seconds):
        rate = options.learning_rate * schedule.factor(step, elapsed_seconds)

    A pure function of where the run is: nothing to save, nothing to restore. `step` counts the updates made
    so far (0 for the first), `elapsed_seconds` the training time so far, over all resumed pieces of the run.
    """

    def __init__(
        self, options: OptimOptions, *, max_steps: int | None = None, max_seconds: float | None = None
    ) -> None:
        """ValueError unless exactly one of the two budgets is given, and above 0."""
        if (max_steps is None) == (max_seconds is None):
            raise ValueError("max_steps and max_minutes: give exactly one of them")
        _require(max_steps is None or max_steps > 0, "max_steps", max_steps or 0, "above 0")
        _require(
            max_seconds is None or 0 < max_seconds < math.inf,
            "max_minutes",
            (max_seconds or 0) / 60,
            "above 0",
        )
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.kind = options.lr_scheduler_type
        self.total: float = max_steps if max_steps is not None else max_seconds  # type: ignore[assignment]
        # Whole warm-up steps, rounded up as TrainingArguments does; seconds need no rounding.
        share = options.warmup_ratio * self.total
        self.warmup: float = math.ceil(share) if max_steps is not None else share
        self.decay: float = options.decay_ratio * self.total

    def factor(self, step: int, elapsed_seconds: float) -> float:
        """What to multiply the peak learning rate with for the update after `step` updates, in [0, 1]."""
        position = self._position(step, elapsed_seconds)
        if self.kind == "linear" or position < self.warmup:
            return linear_factor(position, self.warmup, self.total)
        if self.kind == "constant_with_warmup":
            return 1.0
        return min(1.0, max(0.0, (self.total - position) / self.decay))

    def finished(self, step: int, elapsed_seconds: float) -> bool:
        return self._position(step, elapsed_seconds) >= self.total

    def progress(self, step: int, elapsed_seconds: float) -> float:
        """The share of the budget used, in [0, 1]."""
        return min(1.0, self._position(step, elapsed_seconds) / self.total)

    def _position(self, step: int, elapsed_seconds: float) -> float:
        return step if self.max_steps is not None else elapsed_seconds
