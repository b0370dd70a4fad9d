"""The first model card, against the Hub client's own reader of cards."""

from pathlib import Path

import pytest
import transformers
from huggingface_hub import ModelCard

from hfbert.hub import publish_task_model, push_model, write_model_card

RESULTS = [("masked loss", 3.9, None), ("masked accuracy", 0.31, 0.06)]


def test_the_card_has_valid_metadata_and_says_what_was_measured(tmp_path: Path) -> None:
    facts = {"corpus": "古文: 12 documents", "steps": "7,000"}
    write_model_card(tmp_path, "you/tiny", facts, RESULTS, example="今天天气很[MASK]。")
    card = ModelCard.load(tmp_path / "README.md")
    metadata = card.data.to_dict()
    assert metadata["pipeline_tag"] == "fill-mask" and metadata["library_name"] == "transformers"
    assert None not in metadata.values()
    for text in (
        "| corpus | 古文: 12 documents |",
        "| masked accuracy | 0.310 | 0.060 |",
        "今天天气很[MASK]。",
    ):
        assert text in card.text, text
    assert str(tmp_path) not in card.text


@pytest.mark.parametrize(
    "auto_class",
    [
        *("AutoModelForSequenceClassification", "AutoModelForTokenClassification"),
        *("AutoModelForQuestionAnswering", "AutoModelForMultipleChoice"),
    ],
)
def test_the_card_of_a_fine_tuned_model_says_how_to_load_it_and_what_it_scores(
    tmp_path: Path, auto_class: str
) -> None:
    result = {
        "task": "情感",
        "model": "tiny/model",
        "train_rows": 9600,
        "eval_rows": 1200,
        "learning_rate": 2e-5,
    }
    result |= {"steps": 30, "seed": 42, "metrics": {"accuracy": 0.9, "macro_f1": 0.8}}
    result |= {"baseline": {"accuracy": 0.5}}
    publish_task_model(tmp_path, "you/classifier", auto_class, result, push=False, private=False)
    card = ModelCard.load(tmp_path / "README.md")
    words = str(card.data.to_dict()["pipeline_tag"]).split("-")
    assert words[-1] in auto_class.lower()
    assert getattr(transformers, auto_class).__name__ in card.text
    for text in ("| accuracy | 0.9 | 0.5 |", "| macro f1 | 0.8 |  |", "情感", "| training rows | 9,600 |"):
        assert text in card.text, text


def test_a_push_that_cannot_be_made_is_one_line_with_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise OSError("no network\nwith a second line")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    with pytest.raises(ValueError, match="--push_to_hub to you/tiny failed: no network") as failed:
        push_model(tmp_path, "you/tiny", private=True)
    assert "\n" not in str(failed.value)
