"""Models with the head and labels of a task from folders of every kind, against their own weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from hfbert import HFBertConfig, HFBertForPreTraining, HFBertForSequenceClassification
from hfbert.training.start import find_max_length, known_labels, load_head

HEAD = HFBertForSequenceClassification
NAMES = ("no", "是")


@pytest.fixture(params=["hfbert", "bert"])
def pretrained(request: pytest.FixtureRequest, tiny_config: dict[str, Any], tmp_path: Path) -> Path:
    if request.param == "hfbert":
        HFBertForPreTraining(HFBertConfig(**tiny_config)).save_pretrained(tmp_path / "start")
    else:
        BertForPreTraining(BertConfig(**tiny_config)).save_pretrained(tmp_path / "start")
    return tmp_path / "start"


@pytest.mark.parametrize("head", [HEAD, BertForSequenceClassification])
def test_the_encoder_comes_from_the_folder_and_the_head_is_new(pretrained: Path, head: Any) -> None:
    model: Any = load_head(head, str(pretrained), NAMES)
    source = HFBertForPreTraining.from_pretrained(pretrained).state_dict()
    for name, value in model.bert.state_dict().items():
        assert torch.equal(value, source[f"bert.{name}"]), name
    assert model.config.id2label == dict(enumerate(NAMES)) and model.num_labels == 2
    assert type(model) is head


def test_random_weights_have_the_shape_and_nothing_else(pretrained: Path) -> None:
    model: Any = load_head(HEAD, str(pretrained), NAMES, random_weights=True)
    source = HFBertForPreTraining.from_pretrained(pretrained).state_dict()
    weight = "embeddings.word_embeddings.weight"
    assert model.bert.state_dict()[weight].shape == source[f"bert.{weight}"].shape
    assert not torch.equal(model.bert.state_dict()[weight], source[f"bert.{weight}"])


def save_classifier(
    folder: Path, tiny_config: dict[str, Any], *names: str
) -> HFBertForSequenceClassification:
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    model = HEAD(HFBertConfig(**tiny_config, **labels))
    with torch.no_grad():
        model.classifier.bias.fill_(5.0)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("names", [("是", "no"), ("no", "是")])
def test_a_head_for_the_same_labels_is_kept(
    tmp_path: Path, tiny_config: dict[str, Any], names: tuple[str, ...]
) -> None:
    model = save_classifier(tmp_path, tiny_config, *names)
    assert known_labels(HEAD, str(tmp_path)) == dict(enumerate(names))
    again: Any = load_head(HEAD, str(tmp_path), names, needs_head=True)
    assert torch.equal(again.classifier.weight, model.classifier.weight)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_a_head_for_other_labels_starts_anew_or_is_refused(
    tmp_path: Path, tiny_config: dict[str, Any], names: tuple[str, ...]
) -> None:
    save_classifier(tmp_path, tiny_config, "no", "是")
    model: Any = load_head(HEAD, str(tmp_path), names)
    assert model.classifier.weight.shape[0] == len(names) and (model.classifier.bias == 0).all()
    with pytest.raises(ValueError, match="has no head for this task: train it first"):
        load_head(HEAD, str(tmp_path), names, needs_head=True)


def test_a_pretrained_model_has_no_head_to_measure(pretrained: Path) -> None:
    assert known_labels(HEAD, str(pretrained)) is None
    with pytest.raises(ValueError, match="has no head for this task"):
        load_head(HEAD, str(pretrained), NAMES, needs_head=True)


def test_the_longest_row_is_the_models_unless_less_is_asked_for(pretrained: Path) -> None:
    assert find_max_length(HEAD, str(pretrained), None) == 24
    assert find_max_length(HEAD, str(pretrained), 9) == 9
    with pytest.raises(ValueError, match="--max_length 25 is more than the 24 positions"):
        find_max_length(HEAD, str(pretrained), 25)


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    for name in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(ValueError, match=r"--model_name_or_path .* cannot be loaded") as caught:
            load_head(HEAD, name, NAMES)
        assert "\n" not in str(caught.value)
