"""Predictions for every row, against each row alone; on two processes, against one."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from hfbert import HFBertConfig, HFBertForQuestionAnswering, HFBertForSequenceClassification
from hfbert.data.features import FeatureCollator
from hfbert.training.prediction import predict_rows


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def make_rows(count: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(2, 20, (count,), generator=generator).tolist()
    rows = [torch.randint(5, 50, (length,), generator=generator).tolist() for length in lengths]
    return [{"input_ids": ids, "token_type_ids": [0] * len(ids), "labels": 9} for ids in rows]


@pytest.mark.parametrize("count", [1, 4, 7, 33])
@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_each_row_gets_what_it_gets_alone_in_the_order_of_the_rows(
    tiny_config: dict[str, Any], count: int, batch_size: int
) -> None:
    model = HFBertForSequenceClassification(HFBertConfig(**tiny_config)).eval()
    rows = make_rows(count)
    found = predict_rows(Accelerator(cpu=True), model, rows, FeatureCollator(0), batch_size)
    assert len(found) == count
    for row, (logits,) in zip(rows, found, strict=True):
        alone = model(torch.tensor([row["input_ids"]])).logits[0]
        np.testing.assert_allclose(logits, alone.detach(), atol=1e-5)


def test_several_outputs_come_together(tiny_config: dict[str, Any]) -> None:
    model = HFBertForQuestionAnswering(HFBertConfig(**tiny_config)).eval()
    rows = [{name: row[name] for name in ("input_ids", "token_type_ids")} for row in make_rows(5)]
    names = ("start_logits", "end_logits")
    found = predict_rows(Accelerator(cpu=True), model, rows, FeatureCollator(0), 2, outputs=names)
    for row, (starts, ends) in zip(rows, found, strict=True):
        alone = model(torch.tensor([row["input_ids"]]))
        size = len(row["input_ids"])
        np.testing.assert_allclose(starts[:size], alone.start_logits[0].detach(), atol=1e-5)
        np.testing.assert_allclose(ends[:size], alone.end_logits[0].detach(), atol=1e-5)


def test_no_rows_have_no_predictions(tiny_config: dict[str, Any]) -> None:
    model = HFBertForSequenceClassification(HFBertConfig(**tiny_config))
    assert predict_rows(Accelerator(cpu=True), model, [], FeatureCollator(0), 4) == []


SCRIPT = """
import sys, torch
import numpy as np
from accelerate import Accelerator
from hfbert import HFBertConfig, HFBertForSequenceClassification
from hfbert.data.features import FeatureCollator
from hfbert.training.prediction import predict_rows
sys.path.insert(0, sys.argv[1])
from test_prediction import make_rows
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == int(sys.argv[3])
torch.manual_seed(0)
shape = dict(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
model = HFBertForSequenceClassification(HFBertConfig(**shape))
found = []
for count in range(1, 34):
    logits = predict_rows(accelerator, model, make_rows(count), FeatureCollator(0), 4)
    assert len(logits) == count
    found += [row for (row,) in logits]
if accelerator.is_main_process:
    np.save(sys.argv[2], np.stack(found))
"""


@pytest.mark.slow
def test_two_processes_give_what_one_gives_to_the_last_row(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = []
    for processes in (1, 2):
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc_per_node={processes}",
            str(script),
        ]
        command += [str(Path(__file__).parent), str(tmp_path / f"{processes}.npy"), str(processes)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        found.append(np.load(tmp_path / f"{processes}.npy"))
    assert len(found[0]) == sum(range(1, 34))
    np.testing.assert_allclose(*found, atol=1e-6)  # other batches, and so other last bits
