"""A saved model opens under every Auto class and works in transformers' pipelines, in English and Chinese."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, BertTokenizer, pipeline

import hfbert
from hfbert import HFBertConfig

WORDS = ["a", "good", "day", "for", "reading", "books", "here", *"今天是读书的好日子", "##s", "."]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
AUTO_CLASSES = {
    "AutoModel": "HFBertModel",
    "AutoModelForPreTraining": "HFBertForPreTraining",
    "AutoModelForMaskedLM": "HFBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "HFBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "HFBertForSequenceClassification",
    "AutoModelForTokenClassification": "HFBertForTokenClassification",
    "AutoModelForQuestionAnswering": "HFBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "HFBertForMultipleChoice",
}


@pytest.fixture
def save(tiny_config: dict[str, Any], tmp_path: Path) -> Any:
    """Save a head with its tokenizer; gives the folder."""

    def saved(head: str) -> Path:
        config = HFBertConfig(**tiny_config | {"vocab_size": len(PIECES)}, num_labels=3)
        getattr(hfbert, head)(config).save_pretrained(tmp_path)
        vocabulary = {piece: number for number, piece in enumerate(PIECES)}
        BertTokenizer(vocab=vocabulary, model_max_length=24).save_pretrained(tmp_path)
        return tmp_path

    return saved


@pytest.mark.parametrize("auto_class", AUTO_CLASSES)
def test_every_auto_class_opens_its_head(save: Any, auto_class: str) -> None:
    folder, head = save(AUTO_CLASSES[auto_class]), getattr(hfbert, AUTO_CLASSES[auto_class])
    assert type(getattr(transformers, auto_class).from_pretrained(folder)) is head
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is HFBertConfig
    assert type(getattr(transformers, auto_class).from_config(config)) is head


def test_any_saved_head_opens_under_any_other(save: Any) -> None:
    folder = save("HFBertForPreTraining")
    original = hfbert.HFBertForPreTraining.from_pretrained(folder)
    for auto_class, head in AUTO_CLASSES.items():
        model = getattr(transformers, auto_class).from_pretrained(folder)
        assert type(model).__name__ == head
        found = model.get_input_embeddings().weight
        assert torch.equal(found, original.get_input_embeddings().weight)


def test_the_tokenizer_opens_by_the_model_type_alone(save: Any) -> None:
    folder = save("HFBertModel")
    (folder / "tokenizer_config.json").unlink()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("good days 今天") == ["good", "day", "##s", "今", "天"]
    assert "token_type_ids" in tokenizer("good", "day")


@pytest.mark.parametrize("text", ["a good [MASK] for reading books.", "今 天 是 读 [MASK] 的 好 日 子"])
def test_fill_mask_gives_the_words_the_model_prefers(save: Any, text: str) -> None:
    folder = save("HFBertForMaskedLM")
    guesses = pipeline("fill-mask", model=str(folder), top_k=4)(text)
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        hfbert.HFBertForMaskedLM.from_pretrained(folder).eval(),
    )
    inputs = tokenizer(text, return_tensors="pt")
    place = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero().item()
    expected = model(**inputs).logits[0, place].softmax(-1).topk(4)
    assert [guess["token"] for guess in guesses] == expected.indices.tolist()
    assert [guess["score"] for guess in guesses] == pytest.approx(expected.values.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    "texts", [["a good day.", "books"], ["今天是好日子", "读书"]], ids=["English", "Chinese"]
)
def test_texts_are_classified_alike_alone_and_in_a_batch(save: Any, texts: list[str]) -> None:
    classify = pipeline("text-classification", model=str(save("HFBertForSequenceClassification")), top_k=None)
    together = classify(texts, batch_size=2)
    for text, scores in zip(texts, together, strict=True):
        alone = classify(text)
        alone = alone[0] if isinstance(alone[0], list) else alone
        assert {score["label"]: score["score"] for score in scores} == pytest.approx(
            {score["label"]: score["score"] for score in alone}, rel=1e-5
        )
        assert sum(score["score"] for score in scores) == pytest.approx(1)


@pytest.mark.parametrize("text", ["a good day for books.", "今天是读书的好日子"])
def test_tags_point_at_their_piece_of_the_text(save: Any, text: str) -> None:
    tag = pipeline("token-classification", model=str(save("HFBertForTokenClassification")), ignore_labels=[])
    tags = tag(text)
    assert len(tags) == len(AutoTokenizer.from_pretrained(tag.model.name_or_path).tokenize(text))
    assert all(text[found["start"] : found["end"]] == found["word"].removeprefix("##") for found in tags)


@pytest.mark.parametrize("text", ["a good day.", "今天是好日子"])
def test_features_are_the_last_states(save: Any, text: str) -> None:
    folder = save("HFBertModel")
    features = torch.tensor(pipeline("feature-extraction", model=str(folder))(text))
    model = hfbert.HFBertModel.from_pretrained(folder).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    torch.testing.assert_close(features, model(**inputs).last_hidden_state)
