"""More positions and other vocabularies, against the rows that were there and the model's own outputs."""

from typing import Any

import pytest
import torch
from transformers import BertTokenizer

from hfbert import HFBertConfig, HFBertForPreTraining
from hfbert.interop import change_vocabulary, extend_positions

OLD = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "heart",
    "##beat",
    "a",
    "b",
    "##b",
    "心",
    "肌",
    "梗",
    "塞",
]
NEW = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "心",
    "heartbeat",
    "ab",
    "##bb",
    "龘",
    "b",
    "肌",
    "a",
    "heart",
    "x",
]


def make(pieces: list[str]) -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest, tiny_config: dict[str, Any]) -> HFBertForPreTraining:
    config = HFBertConfig(**tiny_config | {"vocab_size": len(OLD), "tie_word_embeddings": request.param})
    model = HFBertForPreTraining(config).eval()
    with torch.no_grad():
        model.cls.predictions.bias.normal_()
    return model


def test_old_positions_stay_and_new_ones_repeat_them(model: HFBertForPreTraining) -> None:
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    before = model(ids).prediction_logits
    table = model.bert.embeddings.position_embeddings.weight.clone()
    extend_positions(model, 60)
    after = model.bert.embeddings.position_embeddings.weight
    assert model.config.max_position_embeddings == len(after) == 60
    assert torch.equal(after, torch.cat([table, table, table[:12]]))
    assert torch.equal(model(ids).prediction_logits, before)
    assert model(torch.full((1, 60), 5)).prediction_logits.isfinite().all()
    extend_positions(model, 10)
    assert model.config.max_position_embeddings == 60


def test_known_pieces_say_what_they_said_and_new_ones_start_from_the_mean(
    model: HFBertForPreTraining,
) -> None:
    old, new = make(OLD), make(NEW)
    ids = ["[CLS]", "heart", "心", "肌", "a", "[SEP]"]
    before = model(torch.tensor([old.convert_tokens_to_ids(ids)]))
    rows = model.get_input_embeddings().weight.clone()
    bias = model.cls.predictions.bias.clone()
    assert change_vocabulary(model, old, new) == 5
    after = model(torch.tensor([new.convert_tokens_to_ids(ids)]))
    torch.testing.assert_close(after.seq_relationship_logits, before.seq_relationship_logits)
    shared = [piece for piece in NEW if piece in OLD]
    ours = after.prediction_logits[..., [NEW.index(piece) for piece in shared]]
    theirs = before.prediction_logits[..., [OLD.index(piece) for piece in shared]]
    torch.testing.assert_close(ours, theirs)
    wanted = {"heartbeat": ["heart", "##beat"], "ab": ["a", "##b"], "##bb": ["##b", "##b"], "龘": ["[UNK]"]}
    for piece, sources in wanted.items():
        numbers = [OLD.index(source) for source in sources]
        weight = model.get_input_embeddings().weight[NEW.index(piece)]
        torch.testing.assert_close(weight, rows[numbers].mean(0))
        torch.testing.assert_close(model.cls.predictions.bias[NEW.index(piece)], bias[numbers].mean())
    assert model.config.vocab_size == len(NEW) == len(model.cls.predictions.bias)
    assert model.get_output_embeddings().weight.shape == (len(NEW), 32)


def test_a_model_of_another_vocabulary_is_saved_and_loaded(
    model: HFBertForPreTraining, tmp_path: Any
) -> None:
    change_vocabulary(model, make(OLD), make(NEW))
    model.save_pretrained(tmp_path)
    again, report = HFBertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    ids = torch.tensor([[2, 6, 9, 3]])
    assert torch.equal(again(ids).prediction_logits, model(ids).prediction_logits)
