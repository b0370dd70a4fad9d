"""Under `transformers.Trainer`: accumulation changes nothing, both labels are found, evaluation works."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

from hfbert import HFBertConfig, HFBertForMaskedLM, HFBertForPreTraining

Row = dict[str, Tensor]


def make_rows(num_rows: int, equal: bool, pairs: bool) -> list[Row]:
    """Rows of eight ids with three labels each, or with one to six."""
    rows = []
    for number in range(num_rows):
        ids = torch.randint(5, 50, (8,))
        labels = torch.full((8,), -100)
        places = torch.randperm(8)[: 3 if equal else 1 + number % 6]
        labels[places] = ids[places]
        row = {"input_ids": ids.masked_fill(labels != -100, 4), "labels": labels}
        row["attention_mask"] = torch.ones(8, dtype=torch.long)
        if pairs:
            row["next_sentence_label"] = torch.tensor(number % 2)
        rows.append(row)
    return rows


def train(
    model: Any, rows: list[Row], folder: Path, batch_size: int, accumulation: int
) -> list[dict[str, Any]]:
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        seed=0,
    )
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    return [log for log in trainer.state.log_history if "loss" in log]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("head", "equal"), [(HFBertForPreTraining, True), (HFBertForMaskedLM, True), (HFBertForMaskedLM, False)]
)
def test_accumulating_four_batches_of_two_is_one_batch_of_eight(
    tiny_config: dict[str, Any], head: Any, equal: bool, sparse: bool, tmp_path: Path
) -> None:
    config = HFBertConfig(**tiny_config, sparse_prediction=sparse)
    rows = make_rows(16, equal, pairs=head is HFBertForPreTraining)
    torch.manual_seed(1)
    one, other = head(config), head(config)
    other.load_state_dict(one.state_dict())
    whole = train(one, rows, tmp_path, batch_size=8, accumulation=1)
    parts = train(other, rows, tmp_path, batch_size=2, accumulation=4)
    for big, small in zip(whole, parts, strict=True):
        assert small["loss"] == pytest.approx(big["loss"], rel=1e-5)
        assert small["grad_norm"] == pytest.approx(big["grad_norm"], rel=1e-4)
    for name, weight in one.named_parameters():
        torch.testing.assert_close(other.get_parameter(name), weight, atol=1e-4, rtol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_logged_loss_is_that_of_the_model(
    tiny_config: dict[str, Any], sparse: bool, tmp_path: Path
) -> None:
    rows = make_rows(8, equal=False, pairs=False)
    model = HFBertForMaskedLM(HFBertConfig(**tiny_config, sparse_prediction=sparse))
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    expected = model(**batch).loss.item()
    logs = train(model, rows, tmp_path, batch_size=2, accumulation=4)
    assert logs[0]["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_evaluation_finds_both_labels_and_gives_the_loss_of_the_model(
    tiny_config: dict[str, Any], sparse: bool, tmp_path: Path
) -> None:
    model = HFBertForPreTraining(HFBertConfig(**tiny_config, sparse_prediction=sparse)).eval()
    rows = make_rows(8, equal=True, pairs=True)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), per_device_eval_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True
    )
    trainer = Trainer(model, arguments, eval_dataset=rows)
    assert set(trainer.label_names) == {"labels", "next_sentence_label"}
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    assert trainer.evaluate()["eval_loss"] == pytest.approx(model(**batch).loss.item(), rel=1e-5)
    predicted = trainer.predict(rows)
    assert [len(labels) for labels in predicted.label_ids] == [8, 8]
    assert predicted.predictions[1].shape == (8, 2)
