"""The config refuses what this encoder is not, checks its types, and reads those of stock."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, BertConfig

from hfbert import HFBertConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": "32"},
        {"hidden_size": 32.0},
        {"vocab_size": None},
        {"hidden_act": 1},
        {"padding_free": "yes"},
        {"sparse_prediction": 1},
        {"hidden_dropout_prob": "0.1"},
        {"hidden_dropout_prob": 1.5},
        {"classifier_dropout": -0.1},
        {"hidden_size": 33},
        {"num_hidden_layers": 0},
        {"type_vocab_size": -1},
        {"pad_token_id": 50},
        {"is_decoder": True},
        {"add_cross_attention": True},
        {"position_embedding_type": "relative_key"},
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_by_its_name(tiny_config: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(StrictDataclassError, match=next(iter(wrong))):
        HFBertConfig(**tiny_config | wrong)


def test_a_whole_number_is_a_probability_too(tiny_config: dict[str, Any]) -> None:
    assert HFBertConfig(**tiny_config | {"hidden_dropout_prob": 0}).hidden_dropout_prob == 0


def test_defaults_are_those_of_stock() -> None:
    stock, ours = BertConfig().to_dict(), HFBertConfig().to_dict()
    decoder = {"use_cache", "model_type"}
    assert {name: ours.get(name) for name in stock if name not in decoder} == {
        name: value for name, value in stock.items() if name not in decoder
    }


def test_saving_and_loading_keep_every_field(tiny_config: dict[str, Any], tmp_path: Path) -> None:
    config = HFBertConfig(**tiny_config, sparse_prediction=True, padding_free=False, num_labels=5)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    loaded.name_or_path = config.name_or_path  # where it was read from
    assert loaded.to_dict() == config.to_dict()
    assert isinstance(AutoConfig.from_pretrained(tmp_path), HFBertConfig)


def test_a_stock_config_loads_without_a_warning(
    tiny_config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stock = BertConfig(**tiny_config, id2label={0: "no", 1: "yes"}, classifier_dropout=0.2).to_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = HFBertConfig(**{name: value for name, value in stock.items() if name != "model_type"})
        (tmp_path / "config.json").write_text(json.dumps(stock | {"model_type": "hfbert"}))
        assert HFBertConfig.from_pretrained(tmp_path).classifier_dropout == 0.2
    assert ours.id2label == {0: "no", 1: "yes"} and ours.hidden_size == 32
    assert not caplog.records


def test_an_old_config_with_fields_of_its_time_loads(tiny_config: dict[str, Any], tmp_path: Path) -> None:
    old = {"architectures": ["BertForMaskedLM"], "gradient_checkpointing": False, "model_type": "bert"}
    old |= {"position_embedding_type": "absolute", "transformers_version": "4.6.0", "use_cache": True}
    old |= {"directionality": "bidi", "pooler_type": "first_token_transform", "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(tiny_config | old))
    assert HFBertConfig.from_pretrained(tmp_path).num_hidden_layers == 2


def test_one_config_never_changes_the_map_of_another() -> None:
    HFBertConfig().auto_map.clear()
    assert len(HFBertConfig().auto_map) == 9
