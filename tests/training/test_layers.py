"""Frozen, new and slower layers, against the names of stock BERT and the formula of the decay."""

import re
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification

from hfbert import HFBertConfig, HFBertForSequenceClassification, HFBertForTokenClassification
from hfbert.training.layers import LayerOptions, depth, prepare_layers, rate_factors
from hfbert.training.optim import OptimOptions, build_optimizer, parameter_groups

HEADS = [HFBertForSequenceClassification, HFBertForTokenClassification, BertForSequenceClassification]


@pytest.fixture(params=HEADS)
def model(request: pytest.FixtureRequest, tiny_config: dict[str, Any]) -> Any:
    config = request.param.config_class(**tiny_config | {"num_hidden_layers": 4})
    return request.param(config)


def frozen(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def test_by_default_everything_learns_at_one_rate(model: Any) -> None:
    assert prepare_layers(model, LayerOptions(), 0.02) == []
    assert frozen(model) == set()
    assert set(rate_factors(model, 1.0).values()) == {1.0}


@pytest.mark.parametrize("freeze_layers", [0, 1, 3, 4])
@pytest.mark.parametrize("freeze_embeddings", [True, False])
def test_the_named_parts_are_frozen_and_no_others(
    model: Any, freeze_layers: int, freeze_embeddings: bool
) -> None:
    options = LayerOptions(freeze_layers=freeze_layers, freeze_embeddings=freeze_embeddings)
    lines = prepare_layers(model, options, 0.02)
    starts = [f"bert.encoder.layer.{layer}." for layer in range(freeze_layers)]
    starts += ["bert.embeddings."] * freeze_embeddings
    expected = {name for name, _ in model.named_parameters() if name.startswith(tuple(starts))}
    assert frozen(model) == expected
    count = sum(parameter.numel() for name, parameter in model.named_parameters() if name in expected)
    assert bool(lines) is bool(expected)
    assert all(f"frozen: {count:,} of" in line for line in lines[:1])


def test_freezing_all_but_the_head_warns(model: Any) -> None:
    lines = prepare_layers(model, LayerOptions(freeze_layers=4, freeze_embeddings=True), 0.02)
    assert lines[1].startswith("warning: only the head learns")


def test_frozen_weights_stay_and_others_move(tiny_config: dict[str, Any]) -> None:
    model = HFBertForSequenceClassification(HFBertConfig(**tiny_config))
    prepare_layers(model, LayerOptions(freeze_layers=1, freeze_embeddings=True), 0.02)
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = build_optimizer(model, OptimOptions(learning_rate=0.1))
    model(torch.tensor([[2, 5, 6, 3]]), labels=torch.tensor([1])).loss.backward()
    optimizer.step()
    for name, value in model.named_parameters():
        is_frozen = "layer.0." in name or "embeddings" in name
        # A bias of keys adds the same to all scores of a query, so that it has no gradient.
        assert torch.equal(value, before[name]) is is_frozen or name.endswith("key.bias"), name


def test_the_rate_falls_by_the_decay_from_layer_to_layer(model: Any) -> None:
    factors = rate_factors(model, 0.5)
    for name, factor in factors.items():
        layer = re.search(r"layer\.(\d)", name)
        expected = 0.5**4 if "embeddings" in name else 0.5 ** (3 - int(layer[1])) if layer else 1.0
        assert factor == expected, name


def test_groups_of_the_optimizer_carry_the_factors_and_hold_every_parameter_once(model: Any) -> None:
    factors = rate_factors(model, 0.9)
    groups = parameter_groups(model, 0.01, factors)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    grouped = [names[id(parameter)] for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(names.values())
    for group in groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            assert group["rate_factor"] == factors[name]
            assert (group["weight_decay"] == 0) is (name.endswith("bias") or "LayerNorm" in name)


@pytest.mark.parametrize("reinit_layers", [1, 3])
def test_the_last_layers_and_the_pooler_start_anew_and_nothing_else(model: Any, reinit_layers: int) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    prepare_layers(model, LayerOptions(reinit_layers=reinit_layers), 0.02)
    for name, value in model.named_parameters():
        layer = re.search(r"layer\.(\d)", name)
        is_new = (layer is not None and int(layer[1]) >= 4 - reinit_layers) or "pooler" in name
        assert bool((value != 7.0).all()) is is_new, name
        if is_new and value.dim() == 2:
            assert 0.015 < value.std() < 0.025
        elif is_new:
            assert bool((value == (1.0 if name.endswith("LayerNorm.weight") else 0.0)).all())


@pytest.mark.parametrize("option", ["freeze_layers", "reinit_layers"])
def test_more_layers_than_there_are_are_refused(model: Any, option: str) -> None:
    with pytest.raises(ValueError, match=f"--{option} 5: the model has 4 layers"):
        prepare_layers(model, LayerOptions(**{option: 5}), 0.02)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [("freeze_layers", -1), ("reinit_layers", -1), ("layerwise_lr_decay", 0.0), ("layerwise_lr_decay", 1.1)],
)
def test_options_that_mean_nothing_are_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        LayerOptions(**{option: value})  # type: ignore[arg-type]


def test_depth_counts_from_the_embeddings_to_the_heads() -> None:
    names = [
        "bert.embeddings.x",
        "bert.encoder.layer.0.x",
        "bert.encoder.layer.11.x",
        "bert.pooler.x",
        "qa.x",
    ]
    assert [depth(name, 12) for name in names] == [0, 1, 12, 13, 13]
