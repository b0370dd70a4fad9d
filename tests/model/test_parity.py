"""hfbert against stock BERT, the oracle: weights, logits, losses, states, maps and gradients are the same."""

from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import BertConfig, PreTrainedModel

import hfbert
from hfbert import HFBertConfig

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
POOLED = ("ForNextSentencePrediction", "ForSequenceClassification", "ForMultipleChoice")
PER_TOKEN = ("ForPreTraining", "ForMaskedLM", "ForTokenClassification")
HEADS = ("Model", *PER_TOKEN, *POOLED, "ForQuestionAnswering")
MASKS = {
    "none": [[1, 1, 1, 1, 1, 1, 1]] * 3,
    "right": [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]],
    "left": [[1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1]],
    "holes": [[1, 0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1, 1], [1, 1, 1, 0, 1, 0, 1]],
    "an empty row": [[1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]],
}
Inputs = dict[str, Any]


class Pair(Protocol):
    def __call__(
        self, head: str, dtype: torch.dtype = ..., attention: str = ..., **own: Any
    ) -> tuple[PreTrainedModel, PreTrainedModel]: ...


@pytest.fixture
def pair(tiny_config: dict[str, Any]) -> Pair:
    """Stock's model of a head and hfbert's with the same weights, none of them zero."""

    def build(
        head: str, dtype: torch.dtype = torch.float32, attention: str = "sdpa", **own: Any
    ) -> tuple[PreTrainedModel, PreTrainedModel]:
        num_labels = 2 if head == "ForQuestionAnswering" else 3
        shared = {**tiny_config, "num_labels": num_labels, "problem_type": "single_label_classification"}
        shared["attn_implementation"] = attention
        stock = getattr(transformers, f"Bert{head}")(BertConfig(**shared))
        for parameter in stock.parameters():
            nn.init.normal_(parameter, std=0.15)
        ours = getattr(hfbert, f"HFBert{head}")(HFBertConfig(**shared, **own))
        ours.load_state_dict(stock.state_dict(), strict=True)
        return stock.to(dtype).eval(), ours.to(dtype).eval()

    return build


def random_labels(head: str, real: Tensor, on_padding: bool) -> Inputs:
    size, length = real.shape
    if head == "ForQuestionAnswering":  # the last answer lies beyond the text, so it has no loss
        ends = torch.tensor([3, length - 1, length + 3])
        return {"start_positions": torch.tensor([0, 2, length]), "end_positions": ends}
    if head == "ForMultipleChoice":
        return {"labels": torch.tensor([1])}
    if head in POOLED:
        return {"labels": torch.tensor([0, 1, 1])}
    if head == "Model":
        return {}
    classes = 3 if head == "ForTokenClassification" else 50
    dropped = torch.rand(size, length) < 0.4
    dropped[0, 0] = False  # at least one label
    dropped = dropped if on_padding else dropped | (real == 0)
    labels = torch.randint(classes, (size, length)).masked_fill(dropped, -100)
    pairs = {"next_sentence_label": torch.tensor([0, 1, 1])} if head == "ForPreTraining" else {}
    return {"labels": labels, **pairs}


def make_inputs(head: str, mask: str, on_padding: bool = False) -> Inputs:
    """Three sequences of seven ids, or one question with three continuations."""
    real = torch.tensor(MASKS[mask])
    inputs = {
        "input_ids": torch.randint(1, 50, real.shape) * real,
        "token_type_ids": torch.randint(2, real.shape),
        "attention_mask": real,
    }
    if head == "ForMultipleChoice":
        inputs = {name: value[None] for name, value in inputs.items()}
    return inputs | random_labels(head, real, on_padding)


def forward_and_backward(model: PreTrainedModel, inputs: Inputs) -> tuple[Any, dict[str, Tensor]]:
    """The outputs, and the gradient of the loss or, without one, of a sum over the real tokens."""
    model.zero_grad()
    outputs = model(**inputs)
    target = outputs.loss if "loss" in outputs else None
    if target is None:
        target = outputs.last_hidden_state[inputs["attention_mask"] > 0].square().mean()
        target = target + outputs.pooler_output.pow(3).mean()
    target.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return outputs, gradients


def largest_difference(one: Any, other: Any) -> float:
    """Over tensors, and over tuples and mappings of them, which must have the same members."""
    if one is None or other is None:
        assert one is None and other is None
        return 0.0
    if torch.is_tensor(one):
        assert one.shape == other.shape
        assert one.isfinite().all()
        return (one - other).abs().max().item() if one.numel() else 0.0
    if hasattr(one, "keys"):
        assert set(one) == set(other) - {"cross_attentions"}  # a decoder's; stock's base model has it, empty
        return max((largest_difference(one[key], other[key]) for key in one), default=0.0)
    assert len(one) == len(other)
    return max(map(largest_difference, one, other), default=0.0)


def assert_same(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    assert largest_difference(one, other) < tolerance


def visible(head: str, outputs: Any, positions: Tensor) -> dict[str, Any]:
    """The outputs, those of single tokens at the chosen positions alone."""
    per_token = {"last_hidden_state", "prediction_logits"} | ({"logits"} if head in PER_TOKEN else set())
    return {name: value[positions] if name in per_token else value for name, value in outputs.items()}


def compare(
    head: str, stock: PreTrainedModel, ours: PreTrainedModel, inputs: Inputs, tolerance: float
) -> Any:
    """Everywhere if the padded grid was computed, on the real tokens if padding was dropped."""
    expected, expected_gradients = forward_and_backward(stock, inputs)
    found, gradients = forward_and_backward(ours, inputs)
    positions = inputs["attention_mask"] > 0
    if ours.config.padding_free is False:
        positions = torch.ones_like(positions)
    assert_same(visible(head, found, positions), visible(head, expected, positions), tolerance)
    assert_same(gradients, expected_gradients, tolerance)
    return found


@pytest.mark.parametrize("head", HEADS)
def test_the_state_dict_has_the_keys_and_shapes_of_stock(pair: Pair, head: str) -> None:
    stock, ours = pair(head)
    shapes = {name: value.shape for name, value in stock.state_dict().items()}
    assert shapes == {name: value.shape for name, value in ours.state_dict().items()}
    stock.load_state_dict(ours.state_dict(), strict=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("head", HEADS)
def test_outputs_and_gradients_are_those_of_stock(
    pair: Pair, head: str, attention: str, dtype: torch.dtype, mask: str
) -> None:
    stock, ours = pair(head, dtype, attention)
    for padding_free in (None, False, True):
        ours.config.padding_free = padding_free
        compare(head, stock, ours, make_inputs(head, mask), TOLERANCE[dtype])


@pytest.mark.parametrize("padding_free", [None, False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head", PER_TOKEN)
def test_labels_on_padding_count_as_in_stock(
    pair: Pair, head: str, mask: str, padding_free: bool | None
) -> None:
    stock, ours = pair(head, padding_free=padding_free)
    compare(head, stock, ours, make_inputs(head, mask, on_padding=True), 1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
@pytest.mark.parametrize("on_padding", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("head", ["ForPreTraining", "ForMaskedLM"])
def test_sparse_logits_are_those_of_stock_at_the_labelled_positions(
    pair: Pair, head: str, attention: str, mask: str, on_padding: bool, dtype: torch.dtype
) -> None:
    stock, ours = pair(head, dtype, attention, sparse_prediction=True)
    inputs = make_inputs(head, mask, on_padding)
    expected, expected_gradients = forward_and_backward(stock, inputs)
    for padding_free in (None, False, True):
        ours.config.padding_free = padding_free
        found, gradients = forward_and_backward(ours, inputs)
        assert_same(found, visible(head, expected, inputs["labels"] != -100), TOLERANCE[dtype])
        assert_same(gradients, expected_gradients, TOLERANCE[dtype])


@pytest.mark.parametrize("head", ["ForPreTraining", "ForMaskedLM"])
def test_sparse_prediction_without_labels_gives_all_logits(pair: Pair, head: str) -> None:
    stock, ours = pair(head, sparse_prediction=True)
    inputs = make_inputs(head, "none")
    del inputs["labels"]
    inputs.pop("next_sentence_label", None)
    assert_same(ours(**inputs), stock(**inputs))


@pytest.mark.parametrize("mask", ["left", "holes", "an empty row"])
@pytest.mark.parametrize("head", ["Model", "ForPreTraining"])
def test_a_pooled_first_position_that_is_padding_keeps_the_states_of_all_positions(
    pair: Pair, head: str, mask: str
) -> None:
    stock, ours = pair(head)
    inputs = make_inputs(head, mask)
    outputs, expected = ours(**inputs), stock(**inputs)
    if bool((inputs["attention_mask"][:, 0] == 0).any()):
        assert_same(outputs, expected)
    assert outputs.loss is not None if head != "Model" else True


@pytest.mark.parametrize("mask", ["right", "holes"])
def test_states_of_dropped_padding_are_zero(pair: Pair, mask: str) -> None:
    _, ours = pair("Model")
    inputs = make_inputs("Model", mask)
    states = ours(**inputs).last_hidden_state
    assert (states[inputs["attention_mask"] == 0] == 0).all()
    assert (states[inputs["attention_mask"] == 1] != 0).any(dim=-1).all()


@pytest.mark.parametrize("padding_free", [None, False, True])
@pytest.mark.parametrize("head", HEADS)
def test_embeddings_and_positions_given_by_hand_are_used_as_in_stock(
    pair: Pair, head: str, padding_free: bool | None
) -> None:
    stock, ours = pair(head, padding_free=padding_free)
    inputs = make_inputs(head, "right")
    words = stock.get_input_embeddings()(inputs.pop("input_ids")).detach()
    inputs["inputs_embeds"] = (words + 0.1).requires_grad_()
    inputs["position_ids"] = torch.randint(24, inputs["attention_mask"].shape)
    _, gradients = forward_and_backward(stock, inputs)
    expected = inputs["inputs_embeds"].grad
    inputs["inputs_embeds"].grad = None
    compare(head, stock, ours, inputs, 1e-5)
    found = inputs["inputs_embeds"].grad - expected  # compare ran both, and gradients add up
    real = inputs["attention_mask"] > 0
    assert_same(found[real], expected[real])
    assert gradients


@pytest.mark.parametrize("head", HEADS)
def test_a_single_row_of_positions_serves_the_whole_batch(pair: Pair, head: str) -> None:
    stock, ours = pair(head)
    inputs = make_inputs(head, "right") | {"position_ids": torch.arange(8, 15)[None]}
    if head == "ForMultipleChoice":
        inputs["position_ids"] = inputs["position_ids"].expand(1, 3, 7)
    compare(head, stock, ours, inputs, 1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_the_tuple_is_that_of_stock(pair: Pair, head: str) -> None:
    stock, ours = pair(head, attention="eager")
    inputs = make_inputs(head, "right") | {"output_hidden_states": True, "output_attentions": True}
    expected, found = stock(**inputs, return_dict=False), ours(**inputs, return_dict=False)
    assert isinstance(found, tuple)
    assert_same(found, expected[: len(found)])
    assert all(part == () for part in expected[len(found) :])  # a decoder's cross attentions


@pytest.mark.parametrize("head", HEADS)
def test_the_tuple_without_labels_is_that_of_stock(pair: Pair, head: str) -> None:
    stock, ours = pair(head)
    inputs = make_inputs(head, "none")
    inputs = {name: value for name, value in inputs.items() if name[:5] in ("input", "token", "atten")}
    assert_same(ours(**inputs, return_dict=False), stock(**inputs, return_dict=False))


@pytest.mark.parametrize("asked", [True, False, 1, -1, [0, 2], [-1], []], ids=str)
@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForQuestionAnswering"])
def test_hidden_states_are_those_of_stock_whichever_layers_are_asked_for(
    pair: Pair, head: str, asked: Any
) -> None:
    stock, ours = pair(head)
    inputs = make_inputs(head, "right") | {"output_hidden_states": asked}
    expected, found = stock(**inputs).hidden_states, ours(**inputs).hidden_states
    assert_same(found, expected)


@pytest.mark.parametrize("head", HEADS)
def test_states_and_maps_recorded_through_the_config_are_those_of_stock(pair: Pair, head: str) -> None:
    stock, ours = pair(head, attention="eager")
    for model in (stock, ours):
        model.config.output_hidden_states = model.config.output_attentions = True
    inputs = make_inputs(head, "right")
    assert_same(ours(**inputs), stock(**inputs))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head", ["Model", "ForPreTraining", "ForNextSentencePrediction"])
def test_sdpa_gives_the_maps_of_eager_attention(pair: Pair, head: str, mask: str) -> None:
    stock, ours = pair(head, attention="eager")
    ours.set_attn_implementation("sdpa")
    inputs = make_inputs(head, mask) | {"output_attentions": True}
    assert_same(ours(**inputs), stock(**inputs))


def additive(allowed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)


@pytest.fixture
def allowed() -> Tensor:
    """(3, 7, 7): whom each position may attend to; itself at least."""
    return (torch.rand(3, 7, 7) < 0.6) | torch.eye(7, dtype=torch.bool)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.int32, torch.uint8, torch.float32])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_masks_of_two_dimensions_are_those_of_stock_in_every_type(
    pair: Pair, attention: str, dtype: torch.dtype
) -> None:
    stock, ours = pair("Model", attention=attention)
    inputs = make_inputs("Model", "right")
    expected = stock(**inputs)
    inputs["attention_mask"] = inputs["attention_mask"].to(dtype)
    real = inputs["attention_mask"] != 0
    assert_same(visible("Model", ours(**inputs), real), visible("Model", expected, real))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_additive_mask_of_four_dimensions_is_that_of_stock(
    pair: Pair, attention: str, allowed: Tensor
) -> None:
    stock, ours = pair("Model", attention=attention)
    biased = additive(allowed)[:, None] + torch.linspace(-2, 0, 7)  # not only zeros and the lowest number
    for mask in (biased, biased.expand(3, 4, 7, 7)):
        inputs = make_inputs("Model", "none") | {"attention_mask": mask}
        assert_same(ours(**inputs), stock(**inputs))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_masks_of_three_and_four_dimensions_mean_the_same_in_every_type(
    pair: Pair, attention: str, dtype: torch.dtype, allowed: Tensor
) -> None:
    stock, ours = pair("Model", attention=attention)
    inputs = make_inputs("Model", "none")
    expected = stock(**inputs | {"attention_mask": additive(allowed)[:, None]})
    for mask in (allowed, allowed[:, None], allowed[:, None].expand(3, 4, 7, 7)):
        assert_same(ours(**inputs | {"attention_mask": mask.to(dtype)}), expected)
    assert_same(ours(**inputs | {"attention_mask": additive(allowed)}), expected)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_one_saves_the_other_opens(pair: Pair, head: str, dtype: torch.dtype, tmp_path: Path) -> None:
    stock, ours = pair(head, dtype, padding_free=False)
    inputs = make_inputs(head, "right")
    ours.save_pretrained(tmp_path / "ours")
    stock.save_pretrained(tmp_path / "stock")
    stock_again = type(stock).from_pretrained(tmp_path / "ours", dtype=dtype)
    ours_again = type(ours).from_pretrained(tmp_path / "stock", dtype=dtype)
    exact = torch.finfo(torch.float64).tiny
    assert_same(stock_again.state_dict(), stock.state_dict(), exact)
    assert_same(ours_again.state_dict(), ours.state_dict(), exact)
    assert_same(stock_again.eval()(**inputs), stock(**inputs))
    if dtype == torch.float32:
        assert_same(
            ours_again.eval()(**inputs | {"output_hidden_states": True}).hidden_states,
            stock(**inputs | {"output_hidden_states": True}).hidden_states,
        )


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
def test_every_activation_is_that_of_stock(tiny_config: dict[str, Any], pair: Pair, activation: str) -> None:
    tiny_config["hidden_act"] = activation
    stock, ours = pair("ForMaskedLM")
    compare("ForMaskedLM", stock, ours, make_inputs("ForMaskedLM", "right"), 1e-5)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_feeding_forward_in_chunks_changes_nothing(
    tiny_config: dict[str, Any], pair: Pair, size: int
) -> None:
    stock, ours = pair("ForPreTraining", chunk_size_feed_forward=size)
    compare("ForPreTraining", stock, ours, make_inputs("ForPreTraining", "right"), 1e-5)


@pytest.mark.parametrize("padding_free", [None, False])
@pytest.mark.parametrize("head", HEADS)
def test_a_batch_gives_what_its_rows_give_one_by_one(
    pair: Pair, head: str, padding_free: bool | None
) -> None:
    _, ours = pair(head, padding_free=padding_free)
    inputs = make_inputs(head, "right")
    inputs = {name: value for name, value in inputs.items() if name[:5] in ("input", "token", "atten")}
    if head == "ForMultipleChoice":
        inputs = {name: value.transpose(0, 1) for name, value in inputs.items()}
    together = visible(head, ours(**inputs), inputs["attention_mask"] > 0)
    rows = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(3)]
    alone = [visible(head, ours(**row), row["attention_mask"] > 0) for row in rows]
    assert_same(together, {name: torch.cat([row[name] for row in alone]) for name in together})
