"""What the tests of the recipes share: accelerate forgets its last run, and a tiny model to start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from transformers import BertTokenizer

from hfbert import HFBertConfig, HFBertForPreTraining

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["good", "bad", "tea", "rain", "anna", "bob", "paris", "is", "in", "sees", "what", "who", "where"]
HAN = "好坏茶雨很热安娜在北京看见谁哪里是什么的人"


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer that was never trained, with a vocabulary of both languages."""
    folder = tmp_path_factory.mktemp("start")
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *dict.fromkeys([*WORDS, *LETTERS, *HAN, *"?.。？"]),
    ]
    pieces += [f"##{letter}" for letter in LETTERS]
    torch.manual_seed(0)
    config = HFBertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    HFBertForPreTraining(config).save_pretrained(folder)
    BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}).save_pretrained(folder)
    return folder
