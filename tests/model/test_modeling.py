"""What the model promises beyond stock: losses that stay finite, errors that say why, ties that hold."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, PreTrainedModel

import hfbert
from hfbert import (
    HFBertConfig,
    HFBertForMaskedLM,
    HFBertForPreTraining,
    HFBertForSequenceClassification,
    HFBertModel,
)

HEADS = tuple(name for name in hfbert.__all__ if name.startswith("HFBert") and name != "HFBertConfig")
SIZES = {  # layers, hidden, heads: https://github.com/google-research/bert
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
Config = dict[str, Any]


def batch(size: int = 3, length: int = 7) -> dict[str, Tensor]:
    """Right-padded rows, each one token shorter than the one before."""
    real = (torch.arange(length) < length - torch.arange(size)[:, None]).long()
    return {"input_ids": torch.randint(1, 50, (size, length)) * real, "attention_mask": real}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_bit_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert set(one) == set(other)
    assert all(torch.equal(one[name], other[name]) for name in one)


def count_parameters(model_class: type[PreTrainedModel], config: Any) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in model_class(config).parameters())


@pytest.mark.parametrize("size", SIZES)
def test_published_sizes_have_as_many_parameters_as_stock(size: str) -> None:
    layers, hidden, heads = SIZES[size]
    shape = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    shape["intermediate_size"] = 4 * hidden
    found = count_parameters(HFBertModel, HFBertConfig(**shape))
    assert found == count_parameters(BertModel, BertConfig(**shape))
    assert found == {"base": 109_482_240, "large": 335_141_888}.get(size, found)


def test_the_default_configuration_is_bert_base() -> None:
    assert count_parameters(HFBertModel, HFBertConfig()) == 109_482_240


@pytest.mark.parametrize("head", HEADS)
def test_a_new_model_is_initialised_as_the_paper_says(tiny_config: Config, head: str) -> None:
    tiny_config["hidden_size"] = 128
    model = getattr(hfbert, head)(HFBertConfig(**tiny_config))
    for name, parameter in model.named_parameters():
        if "LayerNorm" in name or name.endswith("bias"):
            assert torch.equal(
                parameter, torch.full_like(parameter, float(name.endswith("LayerNorm.weight")))
            )
        elif parameter.numel() > 1000:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
    assert (model.get_input_embeddings().weight[0] == 0).all()  # [PAD]


def checkpointed_run(model: PreTrainedModel, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    torch.manual_seed(1)
    loss = model(**inputs).loss
    loss.backward()
    return loss, gradients(model)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("padding_free", [None, False])
def test_gradient_checkpointing_changes_no_bit(
    tiny_config: Config, use_reentrant: bool, frozen: bool, sparse: bool, padding_free: bool | None
) -> None:
    tiny_config |= {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    config = HFBertConfig(**tiny_config, sparse_prediction=sparse, padding_free=padding_free)
    model = HFBertForMaskedLM(config).train()
    if frozen:
        model.bert.embeddings.requires_grad_(False)
    inputs = batch()
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    plain_loss, plain = checkpointed_run(model, inputs)
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    loss, found = checkpointed_run(model, inputs)
    assert torch.equal(loss, plain_loss)
    assert_bit_equal(found, plain)
    assert all(f"bert.encoder.layer.{layer}.output.dense.weight" in found for layer in (0, 1))


def test_dropout_is_a_function_of_the_seed(tiny_config: Config) -> None:
    tiny_config |= {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    model, inputs = HFBertModel(HFBertConfig(**tiny_config)).train(), batch()
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(model(**inputs).last_hidden_state)
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    model.eval()
    assert torch.equal(model(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", [HFBertForMaskedLM, HFBertForPreTraining])
@pytest.mark.parametrize(("before", "after"), [(21128, 21215), (21128, 21000)])
def test_resizing_the_vocabulary_takes_the_bias_along(
    tiny_config: Config, head: Any, tied: bool, before: int, after: int, tmp_path: Path
) -> None:
    tiny_config |= {"vocab_size": before, "hidden_size": 8, "tie_word_embeddings": tied}
    model = head(HFBertConfig(**tiny_config)).eval()
    nn.init.normal_(model.cls.predictions.bias)
    old = model.cls.predictions.decoder
    old_weight, old_bias, kept = old.weight.clone(), old.bias.clone(), min(before, after)
    model.resize_token_embeddings(after)

    predictions = model.cls.predictions
    assert model.config.vocab_size == after == predictions.decoder.out_features
    assert len(model.get_input_embeddings().weight) == len(predictions.decoder.weight) == after
    assert predictions.bias is predictions.decoder.bias
    assert torch.equal(predictions.decoder.weight[:kept], old_weight[:kept])
    assert torch.equal(predictions.bias[:kept], old_bias[:kept])
    assert (predictions.bias[kept:] == 0).all()
    assert (predictions.decoder.weight is model.get_input_embeddings().weight) == tied
    assert_same_logits_after_reload(model, tmp_path, tied)


def assert_same_logits_after_reload(model: PreTrainedModel, folder: Path, tied: bool) -> None:
    ids = torch.tensor([[1, 2, model.config.vocab_size - 1]])
    model.save_pretrained(folder)
    again = type(model).from_pretrained(folder).eval()
    assert all(map(torch.equal, model(ids).to_tuple(), again(ids).to_tuple()))
    assert again.cls.predictions.bias is again.cls.predictions.decoder.bias
    assert (again.cls.predictions.decoder.weight is again.get_input_embeddings().weight) == tied


def test_a_resized_model_still_learns_its_new_bias(tiny_config: Config) -> None:
    model = HFBertForMaskedLM(HFBertConfig(**tiny_config))
    model.resize_token_embeddings(60)
    ids = torch.tensor([[1, 55, 2]])
    model(ids, labels=ids).loss.backward()
    assert model.cls.predictions.bias.grad.shape == (60,)
    assert model.cls.predictions.bias.grad[55] != 0


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", [HFBertForMaskedLM, HFBertForPreTraining])
def test_tied_weights_share_their_storage(tiny_config: Config, head: Any, tied: bool, tmp_path: Path) -> None:
    head(HFBertConfig(**tiny_config, tie_word_embeddings=tied)).save_pretrained(tmp_path)
    model = head.from_pretrained(tmp_path)
    decoder = model.cls.predictions.decoder
    assert isinstance(model._tied_weights_keys, dict)
    shares = decoder.weight.data_ptr() == model.bert.embeddings.word_embeddings.weight.data_ptr()
    assert shares == tied
    assert decoder.bias.data_ptr() == model.cls.predictions.bias.data_ptr()


@pytest.mark.parametrize("head", HEADS)
def test_every_class_constructs_saves_and_loads_the_same(
    tiny_config: Config, head: str, tmp_path: Path
) -> None:
    model = getattr(hfbert, head)(HFBertConfig(**tiny_config))
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    model.save_pretrained(tmp_path)
    again, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert_bit_equal(model.state_dict(), again.state_dict())
    assert not any(report.values()), report


def test_nothing_in_a_loaded_model_is_left_to_chance(tiny_config: Config) -> None:
    """A buffer that is not saved holds garbage after `from_pretrained`; so the model has none."""
    for head in HEADS:
        assert not list(getattr(hfbert, head)(HFBertConfig(**tiny_config)).buffers())


def test_weights_missing_from_a_checkpoint_are_initialised(tiny_config: Config, tmp_path: Path) -> None:
    config = HFBertConfig(**tiny_config)
    HFBertModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    model, report = HFBertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in report["missing_keys"]} <= {"cls", "bert"}
    assert model.cls.seq_relationship.weight.std().item() == pytest.approx(0.02, rel=0.5)
    for name in ("cls.predictions.bias", "cls.seq_relationship.bias", "bert.pooler.dense.bias"):
        assert (model.get_parameter(name) == 0).all()
    assert (model.cls.predictions.transform.LayerNorm.weight == 1).all()


@pytest.mark.parametrize("head", HEADS)
def test_the_position_buffer_of_older_checkpoints_is_no_surprise(
    tiny_config: Config, head: str, tmp_path: Path
) -> None:
    model = getattr(hfbert, head)(HFBertConfig(**tiny_config))
    prefix = "" if head == "HFBertModel" else "bert."
    model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    buffer = {f"{prefix}embeddings.position_ids": torch.arange(24)[None]}
    save_file(load_file(weights) | buffer, weights, metadata={"format": "pt"})
    _, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.ones(1, 25, dtype=torch.long)}, "sequence length 25 > 24"),
        ({"inputs_embeds": torch.ones(1, 25, 32)}, "sequence length 25 > 24"),
        ({"input_ids": torch.tensor([[1, 50]])}, "token id 50 .* 50 rows"),
        ({"input_ids": torch.tensor([[1, -1]])}, "token id -1 .* 50 rows"),
        ({"input_ids": torch.tensor([[1]]), "position_ids": torch.tensor([[24]])}, "position id 24 .* 24"),
        ({"input_ids": torch.tensor([[1]]), "token_type_ids": torch.tensor([[2]])}, "type id 2 .* 2 rows"),
        ({"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(2, 4)}, r"\(2, 4\).* 2 .* 3 "),
        ({"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(3)}, r"\(3,\)"),
        ({}, "exactly one"),
        ({"input_ids": torch.tensor([[1]]), "inputs_embeds": torch.ones(1, 1, 32)}, "exactly one"),
    ],
)
@pytest.mark.parametrize("head", ["HFBertModel", "HFBertForPreTraining", "HFBertForSequenceClassification"])
def test_inputs_that_do_not_fit_are_refused_with_both_numbers(
    tiny_config: Config, head: str, inputs: dict[str, Tensor], message: str
) -> None:
    model = getattr(hfbert, head)(HFBertConfig(**tiny_config))
    with pytest.raises(ValueError, match=message):
        model(**inputs)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_label_alone_gives_its_own_part_of_the_loss(tiny_config: Config, sparse: bool) -> None:
    model = HFBertForPreTraining(HFBertConfig(**tiny_config, sparse_prediction=sparse)).eval()
    inputs = batch()
    labels = inputs["input_ids"].masked_fill((torch.rand(3, 7) < 0.5) | (inputs["attention_mask"] == 0), -100)
    pairs = torch.tensor([0, 1, 1])
    plain = model(**inputs)
    masked = F.cross_entropy(plain.prediction_logits.flatten(0, 1), labels.flatten())
    next_sentence = F.cross_entropy(plain.seq_relationship_logits, pairs)
    torch.testing.assert_close(model(**inputs, labels=labels).loss, masked)
    torch.testing.assert_close(model(**inputs, next_sentence_label=pairs).loss, next_sentence)
    both = model(**inputs, labels=labels, next_sentence_label=pairs).loss
    torch.testing.assert_close(both, masked + next_sentence)
    assert plain.loss is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("padding_free", [None, False, True])
@pytest.mark.parametrize("head", [HFBertForMaskedLM, HFBertForPreTraining])
def test_a_batch_without_a_label_has_loss_zero_and_finite_gradients(
    tiny_config: Config, head: Any, padding_free: bool | None, sparse: bool, dtype: torch.dtype
) -> None:
    model = head(HFBertConfig(**tiny_config, sparse_prediction=sparse, padding_free=padding_free)).to(dtype)
    if (
        dtype == torch.float16
    ):  # on a CPU, LayerNorm keeps 1 / sqrt(1e-12) of a zero state in float16: infinite
        nn.init.normal_(model.cls.predictions.transform.dense.bias)
    inputs = batch()
    loss = model(**inputs, labels=torch.full((3, 7), -100)).loss
    loss.backward()
    assert loss.item() == 0
    assert gradients(model)
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("padding_free", [None, False, True])
@pytest.mark.parametrize("which", ["one row", "every row", "four dimensions"])
def test_a_row_of_padding_alone_is_never_nan(
    tiny_config: Config, which: str, padding_free: bool | None, attention: str, dtype: torch.dtype
) -> None:
    config = HFBertConfig(**tiny_config, padding_free=padding_free, attn_implementation=attention)
    model = HFBertForPreTraining(config).to(dtype)
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1 if which == "one row" else slice(None)] = 0
    if which == "four dimensions":
        mask = torch.zeros(3, 1, 7, 7, dtype=dtype).masked_fill(mask[:, None, None] == 0, float("-inf"))
    ids = torch.randint(1, 50, (3, 7))
    outputs = model(ids, mask, labels=ids, next_sentence_label=torch.tensor([0, 1, 1]))
    outputs.loss.backward()
    assert all(part.isfinite().all() for part in outputs.to_tuple())
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.filterwarnings("error")
def test_regression_is_the_mean_squared_error(
    tiny_config: Config, shape: tuple[int, ...], integers: bool
) -> None:
    model = HFBertForSequenceClassification(HFBertConfig(**tiny_config, num_labels=1)).eval()
    labels = torch.tensor([3.0, 1.0] if integers else [3.2, 0.7]).view(shape)
    outputs = model(batch(2)["input_ids"], labels=labels.long() if integers else labels)
    by_hand = sum((outputs.logits[row, 0] - labels.flatten()[row]) ** 2 for row in range(2)) / 2
    torch.testing.assert_close(outputs.loss, by_hand)
    assert model.config.problem_type == "regression"


@pytest.mark.parametrize("problem", ["multi_label_classification", None])
def test_several_labels_a_row_are_independent_choices(tiny_config: Config, problem: str | None) -> None:
    config = HFBertConfig(**tiny_config, num_labels=3, problem_type=problem)
    model = HFBertForSequenceClassification(config).eval()
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    outputs = model(batch(2)["input_ids"], labels=labels)
    chances = outputs.logits.sigmoid()
    by_hand = -(labels * chances.log() + (1 - labels) * (1 - chances).log()).mean()
    torch.testing.assert_close(outputs.loss, by_hand)
    assert model.config.problem_type == "multi_label_classification"


def test_regression_of_several_numbers_is_that_of_stock(tiny_config: Config) -> None:
    tiny_config |= {"num_labels": 3, "problem_type": "regression"}
    stock = transformers.BertForSequenceClassification(BertConfig(**tiny_config)).eval()
    ours = HFBertForSequenceClassification(HFBertConfig(**tiny_config)).eval()
    ours.load_state_dict(stock.state_dict())
    ids, labels = batch(2)["input_ids"], torch.randn(2, 3)
    torch.testing.assert_close(ours(ids, labels=labels).loss, stock(ids, labels=labels).loss)


@pytest.mark.parametrize("padding_free", [None, False, True])
def test_positions_that_are_read_have_the_states_of_the_whole_grid(
    tiny_config: Config, padding_free: bool | None
) -> None:
    model = HFBertModel(HFBertConfig(**tiny_config, padding_free=padding_free)).eval()
    inputs = batch()
    grid = model(**inputs)
    for places in ([0, 3, 8, 12, 14, 18], [2], [7], []):
        outputs = model(**inputs, read_positions=torch.tensor(places, dtype=torch.long))
        torch.testing.assert_close(outputs.last_hidden_state, grid.last_hidden_state.flatten(0, 1)[places])
        torch.testing.assert_close(outputs.pooler_output, grid.pooler_output)


def test_states_of_padding_are_computed_when_they_are_read(tiny_config: Config) -> None:
    model, inputs = HFBertModel(HFBertConfig(**tiny_config)).eval(), batch()
    padding = inputs["attention_mask"] == 0
    read = model(**inputs, padding_is_read=True).last_hidden_state
    assert (read[padding] != 0).all()
    assert (model(**inputs).last_hidden_state[padding] == 0).all()
    place = padding.flatten().nonzero()[0]
    torch.testing.assert_close(model(**inputs, read_positions=place).last_hidden_state[0], read[padding][0])


def test_what_stands_on_padding_changes_nothing(tiny_config: Config) -> None:
    inputs = batch()
    other = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 9)
    for padding_free in (None, False):
        model = HFBertModel(HFBertConfig(**tiny_config, padding_free=padding_free)).eval()
        real = inputs["attention_mask"] > 0
        changed = model(other, inputs["attention_mask"]).last_hidden_state[real]
        torch.testing.assert_close(changed, model(**inputs).last_hidden_state[real])
        assert not torch.allclose(model(other).last_hidden_state[real], changed)  # so the mask is read


def test_special_tokens_are_attended_to(tiny_config: Config) -> None:
    model = HFBertModel(HFBertConfig(**tiny_config)).eval()
    one, other = torch.tensor([[2, 7, 8, 3]]), torch.tensor([[2, 7, 8, 4]])
    difference = model(one).last_hidden_state[0, 1] - model(other).last_hidden_state[0, 1]
    assert difference.abs().max() > 1e-4


@pytest.mark.parametrize("head", HEADS)
def test_inputs_come_in_the_order_of_stock(tiny_config: Config, head: str) -> None:
    model = getattr(hfbert, head)(HFBertConfig(**tiny_config)).eval()
    inputs = batch() | {"token_type_ids": torch.randint(2, (3, 7))}
    if "Choice" in head:
        inputs = {name: value[None] for name, value in inputs.items()}
    by_name = model(**inputs).to_tuple()
    by_place = model(inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"]).to_tuple()
    assert all(map(torch.equal, by_name, by_place))


def test_an_exported_model_takes_any_batch_and_length(tiny_config: Config) -> None:
    model = HFBertForPreTraining(HFBertConfig(**tiny_config)).eval()
    size, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=24)
    shape = {0: size, 1: length}
    example = batch(2, 8) | {"token_type_ids": torch.zeros(2, 8, dtype=torch.long)}
    shapes = dict.fromkeys(example, shape)
    exported = torch.export.export(model, (), example, dynamic_shapes=shapes, strict=False)
    for rows, width in ((2, 5), (3, 12), (4, 24)):
        inputs = batch(rows, width) | {"token_type_ids": torch.randint(2, (rows, width))}
        found, expected = exported.module()(**inputs), model(**inputs)
        real = inputs["attention_mask"] > 0
        words = found["prediction_logits"][real], expected["prediction_logits"][real]
        pairs = found["seq_relationship_logits"], expected["seq_relationship_logits"]
        for logits in (words, pairs):
            torch.testing.assert_close(*logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("copied", ["deepcopy", "pickle", "torch.save"])
def test_a_copy_keeps_its_ties_and_its_outputs(tiny_config: Config, copied: str) -> None:
    model, inputs = HFBertForPreTraining(HFBertConfig(**tiny_config)).eval(), batch()
    if copied == "deepcopy":
        again = copy.deepcopy(model)
    elif copied == "pickle":
        again = pickle.loads(pickle.dumps(model))
    else:
        torch.save(model.state_dict(), stream := io.BytesIO())
        stream.seek(0)
        again = HFBertForPreTraining(model.config).eval()
        again.load_state_dict(torch.load(stream, weights_only=True))
    assert all(map(torch.equal, model(**inputs).to_tuple(), again(**inputs).to_tuple()))
    assert again.cls.predictions.decoder.weight is again.get_input_embeddings().weight


@pytest.mark.parametrize("shape", [(1, 1), (2, 24)], ids=str)
@pytest.mark.parametrize("padding_free", [None, False, True])
def test_the_smallest_and_the_longest_batches_pass(
    tiny_config: Config, padding_free: bool | None, shape: tuple[int, int]
) -> None:
    model = HFBertModel(HFBertConfig(**tiny_config, padding_free=padding_free)).eval()
    ids = torch.ones(shape, dtype=torch.long)
    assert model(ids, torch.ones_like(ids)).last_hidden_state.shape == (*shape, 32)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("head", ["HFBertModel", "HFBertForMaskedLM", "HFBertForSequenceClassification"])
def test_an_empty_batch_is_refused_by_its_shape(
    tiny_config: Config, head: str, shape: tuple[int, int]
) -> None:
    model = getattr(hfbert, head)(HFBertConfig(**tiny_config))
    with pytest.raises(ValueError, match=f"{shape[0]} sequences of {shape[1]}"):
        model(torch.ones(shape, dtype=torch.long))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dimensions", [2, 4])
def test_autocast_stays_near_full_precision(tiny_config: Config, attention: str, dimensions: int) -> None:
    config = HFBertConfig(**tiny_config, attn_implementation=attention)
    model, inputs = HFBertForPreTraining(config).eval(), batch()
    if dimensions == 4:
        allowed = (inputs["attention_mask"] > 0)[:, None, None]
        lowest = torch.finfo(torch.float32).min
        inputs["attention_mask"] = torch.zeros(3, 1, 1, 7).masked_fill(~allowed, lowest).expand(3, 1, 7, 7)
    exact = model(**inputs, labels=inputs["input_ids"])
    with torch.autocast("cpu", torch.bfloat16):
        found = model(**inputs, labels=inputs["input_ids"])
    found.loss.backward()
    torch.testing.assert_close(found.loss, exact.loss, rtol=0.01, atol=0)
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


def test_gradients_of_recorded_states_and_maps_are_kept(tiny_config: Config) -> None:
    model = HFBertForMaskedLM(HFBertConfig(**tiny_config, attn_implementation="eager"))
    outputs = model(**batch(), output_hidden_states=True, output_attentions=True)
    for part in (*outputs.hidden_states, *outputs.attentions):
        part.retain_grad()
    outputs.logits[0, 0].sum().backward()
    assert all(part.grad is not None for part in (*outputs.hidden_states, *outputs.attentions))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_inference_needs_no_gradients_and_no_contiguous_inputs(tiny_config: Config, context: Any) -> None:
    model, inputs = HFBertForPreTraining(HFBertConfig(**tiny_config)).eval(), batch()
    turned = {name: value.t().contiguous().t() for name, value in inputs.items()}
    labels = inputs["input_ids"].t().contiguous().t()
    with context():
        for sparse in (False, True):
            model.config.sparse_prediction = sparse
            found = model(**turned, labels=labels).to_tuple()
            assert all(map(torch.equal, found, model(**inputs, labels=inputs["input_ids"]).to_tuple()))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("head", [HFBertForMaskedLM, HFBertForPreTraining])
def test_losses_of_parts_of_a_batch_add_up_to_that_of_the_whole(
    tiny_config: Config, head: Any, sparse: bool
) -> None:
    model, inputs = head(HFBertConfig(**tiny_config, sparse_prediction=sparse)).eval(), batch(4)
    inputs["labels"] = inputs["input_ids"].masked_fill(torch.rand(4, 7) < 0.6, -100)
    inputs["labels"][2] = -100  # a part without any label
    counts = {"num_items_in_batch": (inputs["labels"] != -100).sum()}
    if head is HFBertForPreTraining:
        inputs["next_sentence_label"] = torch.tensor([0, 1, 1, 0])
        counts["num_pairs_in_batch"] = torch.tensor(4)
    whole = model(**inputs).loss
    rows = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(4)]
    parts = sum(model(**row, **counts).loss for row in rows)
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("none", [0, torch.tensor(0)], ids=["a number", "a tensor"])
@pytest.mark.parametrize("head", [HFBertForMaskedLM, HFBertForPreTraining])
def test_a_step_whose_counted_labels_are_none_has_loss_zero(
    tiny_config: Config, head: Any, none: Any
) -> None:
    """`Trainer` passes its count over the whole step, which is 0 when nothing was masked."""
    model = head(HFBertConfig(**tiny_config))
    pairs = {"next_sentence_label": torch.tensor([0, 1, 1])} if head is HFBertForPreTraining else {}
    loss = model(**batch(), labels=torch.full((3, 7), -100), num_items_in_batch=none, **pairs).loss
    loss.backward()
    assert loss.item() == 0
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


def test_labels_of_another_shape_are_refused_where_they_say_what_is_read(tiny_config: Config) -> None:
    model = HFBertForMaskedLM(HFBertConfig(**tiny_config, sparse_prediction=True))
    with pytest.raises(ValueError, match=r"\(3, 5\) do not fit .* \(3, 7\)"):
        model(**batch(), labels=torch.ones(3, 5, dtype=torch.long))
