"""LAMB and BERT's Adam, against their published formulas in numpy and torch's AdamW."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import get_wsd_schedule

from hfbert.training.optim import OptimOptions, Schedule, build_optimizer
from hfbert.training.optimizers import Lamb

RATE, BETA1, BETA2, EPSILON, DECAY = 0.03, 0.9, 0.98, 1e-6, 0.05


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).double()


def gradients(model: nn.Module, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(one.shape, generator=generator, dtype=torch.float64) for one in model.parameters()]


def follow_formula(
    weights: list[np.ndarray], num_steps: int, trust: bool, corrects: bool
) -> list[np.ndarray]:
    """You et al., algorithm 2, line by line; decay and ratio for the matrix alone."""
    model = make_model()
    means = [np.zeros_like(weight) for weight in weights]
    squares = [np.zeros_like(weight) for weight in weights]
    for step in range(1, num_steps + 1):
        for number, gradient in enumerate(one.numpy() for one in gradients(model, step)):
            means[number] = BETA1 * means[number] + (1 - BETA1) * gradient
            squares[number] = BETA2 * squares[number] + (1 - BETA2) * gradient**2
            mean, square = means[number], squares[number]
            if corrects:
                mean, square = mean / (1 - BETA1**step), square / (1 - BETA2**step)
            is_matrix = weights[number].ndim == 2
            update = mean / (np.sqrt(square) + EPSILON) + (DECAY if is_matrix else 0) * weights[number]
            ratio = 1.0
            if trust and is_matrix:
                ratio = np.linalg.norm(weights[number]) / np.linalg.norm(update)
            weights[number] = weights[number] - RATE * ratio * update
    return weights


@pytest.mark.parametrize(
    ("optim", "trust", "corrects"),
    [("lamb", True, True), ("adamw_bert", False, False), ("adamw", False, True)],
)
def test_ten_updates_follow_the_published_formula(optim: Any, trust: bool, corrects: bool) -> None:
    model = make_model()
    options = OptimOptions(
        learning_rate=RATE,
        weight_decay=DECAY,
        adam_beta1=BETA1,
        adam_beta2=BETA2,
        adam_epsilon=EPSILON,
        optim=optim,
    )
    optimizer = build_optimizer(model, options)
    expected = follow_formula(
        [one.detach().numpy().copy() for one in model.parameters()], 10, trust, corrects
    )
    for step in range(1, 11):
        for parameter, gradient in zip(model.parameters(), gradients(model, step), strict=True):
            parameter.grad = gradient
        optimizer.step()
    for parameter, weight in zip(model.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-9, atol=1e-12)


def test_with_correction_and_without_trust_it_is_adamw() -> None:
    one, other = make_model(), make_model()
    settings: dict[str, Any] = {"lr": RATE, "betas": (BETA1, BETA2), "eps": EPSILON, "weight_decay": DECAY}
    ours = Lamb(one.parameters(), **settings, trust=False, bias_correction=True)
    theirs = torch.optim.AdamW(other.parameters(), **settings)
    for step in range(1, 6):
        for model, optimizer in ((one, ours), (other, theirs)):
            for parameter, gradient in zip(model.parameters(), gradients(model, step), strict=True):
                parameter.grad = gradient
            optimizer.step()
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left, right)


def test_a_weight_or_an_update_of_norm_0_moves_by_the_rate_alone() -> None:
    weight = nn.Parameter(torch.zeros(3, 3))
    optimizer = Lamb([weight], lr=0.1)
    weight.grad = torch.ones(3, 3)
    optimizer.step()
    torch.testing.assert_close(weight.data, torch.full((3, 3), -0.1))
    still = nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([still], lr=0.1, weight_decay=1e-30)
    still.grad = torch.zeros(2, 2)
    optimizer.step()
    assert still.isfinite().all()


def test_its_state_comes_back_from_a_checkpoint() -> None:
    def run(optimizer: torch.optim.Optimizer, model: nn.Module, steps: range) -> None:
        for step in steps:
            for parameter, gradient in zip(model.parameters(), gradients(model, step), strict=True):
                parameter.grad = gradient
            optimizer.step()

    options = OptimOptions(learning_rate=RATE, optim="lamb")
    whole, halved = make_model(), make_model()
    run(build_optimizer(whole, options), whole, range(6))
    first = build_optimizer(halved, options)
    run(first, halved, range(3))
    second = build_optimizer(halved, options)
    second.load_state_dict(first.state_dict())
    run(second, halved, range(3, 6))
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), halved.parameters(), strict=True))


@pytest.mark.parametrize(("warmup", "decay", "num_steps"), [(0.1, 0.2, 50), (0.0, 0.5, 10), (0.25, 0.75, 20)])
def test_the_trapezoid_is_that_of_transformers(warmup: float, decay: float, num_steps: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    counts = {"num_warmup_steps": round(warmup * num_steps), "num_decay_steps": round(decay * num_steps)}
    stock = get_wsd_schedule(optimizer, **counts, num_training_steps=num_steps, decay_type="linear")
    options = OptimOptions(
        learning_rate=1.0, warmup_ratio=warmup, decay_ratio=decay, lr_scheduler_type="warmup_stable_decay"
    )
    over_steps = Schedule(options, max_steps=num_steps)
    over_time = Schedule(options, max_seconds=10.0 * num_steps)
    for step in range(num_steps):
        assert over_steps.factor(step, 0.0) == pytest.approx(stock.get_last_lr()[0])
        assert over_time.factor(0, 10.0 * step) == pytest.approx(stock.get_last_lr()[0])
        optimizer.step()
        stock.step()
    assert over_steps.factor(num_steps, 0.0) == 0


def test_a_trapezoid_longer_than_the_run_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"warmup_ratio=0\.6 and decay_ratio=0\.5 are more than the whole run"
    ):
        OptimOptions(
            learning_rate=1.0, warmup_ratio=0.6, decay_ratio=0.5, lr_scheduler_type="warmup_stable_decay"
        )
