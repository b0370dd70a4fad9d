"""The training loop: order, dealing, normalisation and resume, against formulas and the uninterrupted run."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn
from transformers import BertTokenizer

from hfbert import DataCollatorForPreTraining, HFBertConfig, HFBertForPreTraining
from hfbert.training.checkpoint import latest_checkpoint
from hfbert.training.loop import TrainingLoop, TrainOptions, make_accelerator, share_of_global_batch
from hfbert.training.optim import OptimOptions
from hfbert.training.order import BatchRamp, HandBatches, deal, epoch_order
from hfbert.training.pretraining import PretrainingTask, constant_baselines, evaluate
from hfbert.training.report import read_metrics

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *"深度学习模型很有趣"]


class Sentences:
    """Rows whose content depends on (epoch, sample) alone."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, sample: int) -> dict[str, object]:
        generator = torch.Generator().manual_seed(1000 * self.epoch + sample)
        length = int(torch.randint(4, 20, (1,), generator=generator))
        words = torch.randint(5, len(PIECES), (length,), generator=generator).tolist()
        label = int(torch.randint(0, 2, (1,), generator=generator))
        return {"input_ids": [2, *words, 3], "next_sentence_label": label, "sample_id": sample}


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    """Accelerate keeps one precision for the life of a process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def make_model(dropout: float = 0.0) -> HFBertForPreTraining:
    torch.manual_seed(0)
    return HFBertForPreTraining(
        HFBertConfig(
            vocab_size=len(PIECES),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            sparse_prediction=True,
        )
    )


def make_loop(folder: Path, tokenizer: BertTokenizer, model: nn.Module, **changes: object) -> TrainingLoop:
    given = {"output_dir": str(folder), "global_batch_size": 8, "report_to": "none", "logging_steps": 1}
    options = TrainOptions(**(given | {"max_steps": 6} | changes))  # type: ignore[arg-type]
    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if options.bf16 else "no")
    held_out = [DataCollatorForPreTraining(tokenizer)([Sentences(9)[sample] for sample in range(9)])]
    held_out = [{name: value for name, value in batch.items() if name != "sample_id"} for batch in held_out]

    def save_model(partial: Path) -> None:
        accelerator.unwrap_model(loop.model).save_pretrained(partial)

    loop = TrainingLoop(
        accelerator,
        model,
        Sentences(21),
        DataCollatorForPreTraining(tokenizer, seed=3),
        PretrainingTask(),
        options,
        OptimOptions(learning_rate=1e-2, warmup_ratio=0.2),
        save_model,
        evaluate=lambda model: evaluate(accelerator, model, held_out) | constant_baselines(held_out),
    )
    return loop


def weights_of(loop: TrainingLoop) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in loop.model.state_dict().items()}


def test_an_epoch_is_a_permutation_and_another_one_in_the_next() -> None:
    first, second = epoch_order(50, seed=1, epoch=0), epoch_order(50, seed=1, epoch=1)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert first.tolist() != second.tolist()
    assert first.tolist() == epoch_order(50, seed=1, epoch=0).tolist()


def test_a_global_batch_is_dealt_turn_by_turn_and_the_last_hands_may_be_short() -> None:
    assert deal(list(range(8)), micro=2, num_processes=2) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert deal([0, 1, 2, 3, 4], micro=2, num_processes=2) == [[[0, 1], [2, 3]], [[4], []]]


@pytest.mark.parametrize("num_processes", [1, 2, 4])
@pytest.mark.parametrize("start", [0, 8, 16])
def test_the_ranks_together_see_the_rest_of_the_epoch_once(num_processes: int, start: int) -> None:
    order = epoch_order(21, seed=0, epoch=0)
    ramp = BatchRamp(8, 8, 0, 2)
    hands = [HandBatches(order, start, 0, ramp, 2, num_processes, rank) for rank in range(num_processes)]
    turns = [turn for window in hands[0].windows() for turn in deal(window, 2, num_processes)]
    seen = [sample for turn in turns for hand in turn for sample in hand]
    assert sorted(seen) == sorted(order[start:].tolist())
    for rank, hand in enumerate(hands):
        filled = [list(turn[rank]) for turn in turns]
        dealt = list(hand)
        assert len(dealt) == len(filled)
        assert all(batch == full for batch, full in zip(dealt, filled, strict=True) if full)


def test_a_batch_grows_in_even_steps_in_multiples_and_every_sample_is_seen_once() -> None:
    ramp = BatchRamp(first=8, last=32, num_steps=6, unit=4)
    assert [ramp.size(step) for step in range(8)] == [8, 12, 16, 20, 24, 28, 32, 32]
    order = epoch_order(100, seed=0, epoch=0)
    windows = list(HandBatches(order, 0, 0, ramp, 4, 1, 0).windows())
    assert [len(window) for window in windows] == [8, 12, 16, 20, 24, 20]
    assert [sample for window in windows for sample in window] == order.tolist()
    assert list(HandBatches(order, 20, 2, ramp, 4, 1, 0).windows()) == windows[2:]  # a resume at step 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_minutes": 1.0, "per_device_train_batch_size": 2}, "initial_batch_size needs max_steps"),
        ({"max_steps": 4}, "initial_batch_size needs max_steps and per_device_train_batch_size"),
        ({"max_steps": 4, "per_device_train_batch_size": 3}, "initial_batch_size=4 must be a multiple of"),
        ({"max_steps": 4, "per_device_train_batch_size": 2, "global_batch_size": 2}, "at most global_batch"),
    ],
)
def test_a_ramp_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    given = {"output_dir": "x", "global_batch_size": 6, "initial_batch_size": 4} | settings
    with pytest.raises(ValueError, match=message):
        TrainOptions(**given)


def test_a_global_batch_that_cannot_be_dealt_evenly_is_refused() -> None:
    options = TrainOptions(output_dir="x", global_batch_size=10, max_steps=1, per_device_train_batch_size=4)
    with pytest.raises(ValueError, match=r"global_batch_size=10 is not a multiple of .*=4 x 2 processes"):
        share_of_global_batch(options, num_processes=2)


def test_fp16_on_a_cpu_is_refused_in_one_line(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    options = TrainOptions(output_dir=str(tmp_path), global_batch_size=8, max_steps=1, fp16=True)
    with pytest.raises(ValueError, match="fp16 needs a GPU"):
        make_accelerator(options)


@pytest.mark.parametrize("micro", [8, 4, 2, 1])
def test_micro_batches_do_not_change_the_weights(
    tmp_path: Path, tokenizer: BertTokenizer, micro: int
) -> None:
    whole = make_loop(tmp_path / "whole", tokenizer, make_model())
    whole.run()
    parts = make_loop(tmp_path / "parts", tokenizer, make_model(), per_device_train_batch_size=micro)
    parts.run()
    for name, weight in weights_of(whole).items():
        torch.testing.assert_close(weights_of(parts)[name], weight, atol=2e-5, rtol=0, msg=name)


def test_the_logged_loss_is_the_mean_over_all_masked_tokens_plus_the_mean_over_all_pairs(
    tmp_path: Path, tokenizer: BertTokenizer
) -> None:
    model = make_model()
    loop = make_loop(tmp_path, tokenizer, model, max_steps=1, per_device_train_batch_size=2)
    rows, collate = Sentences(21), DataCollatorForPreTraining(tokenizer, seed=3)
    batch = collate([rows[sample] for sample in epoch_order(21, seed=42, epoch=0)[:8].tolist()])
    expected = model(**batch).loss.item()  # one batch of all eight
    loop.run()
    assert read_metrics(tmp_path / "metrics.jsonl")[0]["loss"] == pytest.approx(expected, abs=1e-6)


def test_the_last_short_window_of_an_epoch_is_used(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    loop = make_loop(tmp_path, tokenizer, make_model(), max_steps=None, num_train_epochs=2)
    loop.run()
    assert loop.position.step == 2 * 3  # 21 samples are windows of 8, 8 and 5
    assert [row["epoch"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(("workers", "ramp"), [(0, {}), (2, {}), (2, {"initial_batch_size": 4})])
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(
    tmp_path: Path, tokenizer: BertTokenizer, workers: int, ramp: dict[str, Any]
) -> None:
    changes = {"per_device_train_batch_size": 4, "save_steps": 1, "dataloader_num_workers": workers} | ramp
    whole = make_loop(tmp_path / "whole", tokenizer, make_model(dropout=0.3), **changes)
    whole.run()
    first = make_loop(tmp_path / "parts", tokenizer, make_model(dropout=0.3), **changes)
    first._finished = lambda started: first.position.step == 4  # type: ignore[method-assign] # in epoch 1
    first.run()
    checkpoint, _ = latest_checkpoint(tmp_path / "parts")
    assert checkpoint is not None
    torch.manual_seed(12345)
    second = make_loop(
        tmp_path / "parts", tokenizer, HFBertForPreTraining.from_pretrained(checkpoint), **changes
    )
    assert second.resume(checkpoint) is None
    second.run()
    for name, weight in weights_of(whole).items():
        assert torch.equal(weights_of(second)[name], weight), name
    timing = "tokens_per_second"
    logs = [read_metrics(tmp_path / part / "metrics.jsonl") for part in ("whole", "parts")]
    logs = [[{key: row[key] for key in row if key != timing} for row in log] for log in logs]
    assert logs[0][:3] == logs[1][:3] and logs[0][4:] == logs[1][4:]


def test_a_gradient_that_is_not_finite_stops_the_run_before_the_update(
    tmp_path: Path, tokenizer: BertTokenizer
) -> None:
    model = make_model()
    model.bert.embeddings.word_embeddings.weight.data[7] = float("inf")
    loop = make_loop(tmp_path, tokenizer, model)
    with pytest.raises(ValueError, match="step 1: the gradient is not finite"):
        loop.run()
    assert latest_checkpoint(tmp_path) == (None, [])


def test_baselines_are_the_best_constant_guesses() -> None:
    batch = {
        "labels": torch.tensor([[-100, 7, 7], [5, -100, 7]]),
        "next_sentence_label": torch.tensor([1, 1, 0]),
    }
    assert constant_baselines([batch]) == {
        "masked_accuracy_baseline": 0.75,
        "next_sentence_accuracy_baseline": pytest.approx(2 / 3),
    }


def test_bfloat16_trains_as_float32_does(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    losses = []
    for precision in (False, True):
        AcceleratorState._reset_state(reset_partial_state=True)
        folder = tmp_path / str(precision)
        make_loop(folder, tokenizer, make_model(), max_steps=50, bf16=precision, eval_steps=50).run()
        losses.append(read_metrics(folder / "metrics.jsonl")[-1]["eval_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.parametrize("wanted", [None, 1])
def test_a_process_takes_its_share_of_the_cores(tmp_path: Path, wanted: int | None) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as `accelerate launch` leaves it
    options = TrainOptions(output_dir=str(tmp_path), global_batch_size=8, max_steps=1, num_threads=wanted)
    make_accelerator(replace(options, report_to="none"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert torch.get_num_threads() == (wanted or cores)
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_steps": None}, "exactly one"),
        ({"max_minutes": 1.0}, "exactly one"),
        ({"max_steps": 0}, "max_steps=0 must be 1 or more"),
        ({"max_steps": None, "max_minutes": float("inf")}, "max_minutes=inf must be above 0"),
        ({"seed": -1}, "seed=-1 must be 0 or more"),
        ({"logging_steps": 0}, "logging_steps=0"),
        ({"bf16": True, "fp16": True}, "bf16, fp16: give one"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainOptions(**({"output_dir": "x", "global_batch_size": 8, "max_steps": 1} | changes))
