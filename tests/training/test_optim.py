"""The schedule and the groups are those of transformers; the update is the formula of decoupled AdamW."""

import math

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForPreTraining, TrainingArguments, get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

from hfbert.training.optim import OptimOptions, Schedule, build_optimizer, linear_factor, parameter_groups


@pytest.fixture(scope="module")
def stock_model() -> BertForPreTraining:
    torch.manual_seed(0)
    shape = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForPreTraining(BertConfig(vocab_size=30, max_position_embeddings=16, **shape))


@pytest.mark.parametrize("name", ["linear", "constant_with_warmup"])
@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("num_steps", [1, 2, 7, 30, 100])
def test_the_schedule_over_steps_is_that_of_transformers(name, ratio, num_steps):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    # TrainingArguments reads a value below 1 as a share; the share 1.0 is all steps.
    warmup = TrainingArguments(warmup_steps=ratio).get_warmup_steps(num_steps) if ratio < 1 else num_steps
    stock = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=num_steps)
    options = OptimOptions(learning_rate=1.0, warmup_ratio=ratio, lr_scheduler_type=name)
    schedule = Schedule(options, max_steps=num_steps)
    for step in range(num_steps):
        assert schedule.factor(step, elapsed_seconds=1e9) == stock.get_last_lr()[0]
        assert not schedule.finished(step, elapsed_seconds=1e9)
        optimizer.step()
        stock.step()
    assert schedule.finished(num_steps, 0.0)
    assert schedule.progress(num_steps, 0.0) == 1.0
    if name == "linear" and ratio < 1:
        assert schedule.factor(num_steps, 0.0) == stock.get_last_lr()[0] == 0.0


def test_the_schedule_over_time_is_the_same_line_laid_over_seconds():
    options = OptimOptions(learning_rate=1.0, warmup_ratio=0.25)
    by_time = Schedule(options, max_seconds=0.4)
    by_step = Schedule(options, max_steps=1000)
    for step in range(1001):
        at = by_time.factor(0, 0.4 * step / 1000)
        assert at == pytest.approx(by_step.factor(step, 0.0), abs=1e-12)
    assert not by_time.finished(10**9, 0.399)
    assert by_time.finished(0, 0.4) and by_time.finished(0, 99.0)
    assert by_time.factor(0, 0.4) == by_time.factor(0, 99.0) == 0.0
    assert by_time.progress(0, 0.1) == 0.25 and by_time.progress(0, 99.0) == 1.0


def test_the_worked_example_of_the_module_holds():
    options = OptimOptions(learning_rate=4e-4, warmup_ratio=0.1)
    schedule = Schedule(options, max_steps=100)
    rates = [options.learning_rate * schedule.factor(step, 0.0) for step in (0, 5, 10, 55, 100)]
    assert rates == pytest.approx([0, 2e-4, 4e-4, 2e-4, 0])


def test_without_warm_up_the_first_step_has_the_whole_rate():
    assert linear_factor(0, 0, 10) == 1.0
    assert linear_factor(0, 3, 10) == 0.0


@pytest.mark.parametrize("budgets", [{}, {"max_steps": 3, "max_seconds": 3.0}])
def test_the_schedule_needs_one_budget(budgets):
    with pytest.raises(ValueError, match="exactly one"):
        Schedule(OptimOptions(learning_rate=1.0), **budgets)


@pytest.mark.parametrize(
    ("budgets", "name"), [({"max_steps": 0}, "max_steps"), ({"max_seconds": 0.0}, "max_min")]
)
def test_a_budget_of_nothing_is_refused(budgets, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        Schedule(OptimOptions(learning_rate=1.0), **budgets)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", -1.0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("weight_decay", -0.1),
        ("adam_beta1", 1.0),
        ("adam_beta2", -0.1),
        ("adam_epsilon", 0.0),
        ("max_grad_norm", math.nan),
        ("warmup_ratio", 1.1),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        OptimOptions(**{"learning_rate": 1.0, name: value})


def test_the_defaults_are_those_of_the_paper():
    options = OptimOptions(learning_rate=1e-4)
    assert (options.adam_beta1, options.adam_beta2, options.weight_decay) == (0.9, 0.999, 0.01)
    assert (options.adam_epsilon, options.max_grad_norm) == (1e-6, 1.0)


def test_the_groups_are_those_of_the_stock_trainer(stock_model):
    forbidden = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    names = set(get_parameter_names(stock_model, [nn.LayerNorm], forbidden))
    parameters = dict(stock_model.named_parameters())  # tied ones once
    decayed, undecayed = parameter_groups(stock_model, 0.01)
    assert (decayed["weight_decay"], undecayed["weight_decay"]) == (0.01, 0.0)
    assert [id(p) for p in decayed["params"]] == [id(p) for name, p in parameters.items() if name in names]
    assert [id(p) for p in undecayed["params"]] == [
        id(p) for name, p in parameters.items() if name not in names
    ]


def test_every_trainable_parameter_is_in_one_group_once_and_frozen_ones_in_none(stock_model):
    frozen = stock_model.bert.embeddings.position_embeddings.weight
    frozen.requires_grad_(False)
    try:
        grouped = [id(p) for group in parameter_groups(stock_model, 0.01) for p in group["params"]]
    finally:
        frozen.requires_grad_(True)
    expected = {id(p) for p in stock_model.parameters()} - {id(frozen)}
    assert len(grouped) == len(set(grouped)) and set(grouped) == expected


def test_a_layer_norm_is_known_by_its_type_whatever_its_name():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.LayerNorm(2))
    decayed, undecayed = parameter_groups(model, 0.1)
    assert decayed["params"] == [model[0].weight]
    assert undecayed["params"] == [model[1].weight, model[1].bias]


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ValueError, match="requires_grad"):
        build_optimizer(nn.Linear(2, 2).requires_grad_(False), OptimOptions(learning_rate=1.0))


def test_ten_updates_follow_the_formula_of_decoupled_adamw():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    options = OptimOptions(learning_rate=0.1, weight_decay=0.2, adam_beta1=0.8, adam_beta2=0.95)
    optimizer = build_optimizer(model, options)
    expected = {name: value.detach().clone() for name, value in model.named_parameters()}
    mean = {name: torch.zeros_like(value) for name, value in expected.items()}
    square = {name: torch.zeros_like(value) for name, value in expected.items()}
    for step in range(1, 11):
        optimizer.zero_grad()
        (model(torch.randn(4, 3).double()) ** 2).sum().backward()
        for name, parameter in model.named_parameters():
            gradient, decay = parameter.grad, 0.2 if name == "weight" else 0.0
            mean[name] = 0.8 * mean[name] + 0.2 * gradient
            square[name] = 0.95 * square[name] + 0.05 * gradient**2
            mean_hat, square_hat = mean[name] / (1 - 0.8**step), square[name] / (1 - 0.95**step)
            expected[name] = expected[name] * (1 - 0.1 * decay) - 0.1 * mean_hat / (square_hat.sqrt() + 1e-6)
        optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-10, atol=1e-12)
