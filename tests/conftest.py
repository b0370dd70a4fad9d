"""What several test files share: the shape of a tiny model, a fixed seed, no Hub unless it is asked for."""

import os
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Before anything imports huggingface_hub, which reads this once."""
    selected = config.option.markexpr or ""
    if "network" not in selected or "not network" in selected:
        os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same numbers, alone or among others."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def tiny_config() -> dict[str, Any]:
    """Keywords for `HFBertConfig` and stock `BertConfig`: two layers, no dropout, so that runs compare."""
    return {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 24,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
