"""A saved folder opens for someone who has never installed hfbert, and computes the very same numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import hfbert
from hfbert import HFBertConfig

STRANGER = """
import sys
sys.modules["hfbert"] = None  # any import of it fails
import torch, transformers

start = sys.argv[1]
for auto_class, name in torch.load(f"{start}/heads.pt", weights_only=True).items():
    folder = f"{start}/{name}"
    saved = torch.load(f"{folder}/outputs.pt", weights_only=True)
    for _ in range(2):  # the second time from what the stranger has saved himself
        model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True).eval()
        assert type(model).__name__ == name, type(model)
        assert "transformers_modules" in type(model).__module__, type(model).__module__
        with torch.no_grad():
            outputs = model(**saved["inputs"]).to_tuple()
        assert all(map(torch.equal, outputs, saved["outputs"])), name
        model.save_pretrained(folder := f"{folder}-again")
config = transformers.AutoConfig.from_pretrained(f"{start}/HFBertModel", trust_remote_code=True)
assert config.model_type == "hfbert"
"""


def save_all_heads(tiny_config: dict[str, Any], folder: Path) -> dict[str, str]:
    """Each head in a folder of its own, beside inputs and what it makes of them."""
    names = {auto: path.split(".")[1] for auto, path in HFBertConfig().auto_map.items() if "Model" in auto}
    ids = torch.randint(1, 50, (2, 9))
    for name in names.values():
        model = getattr(hfbert, name)(HFBertConfig(**tiny_config)).eval()
        mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
        inputs = {"input_ids": ids, "attention_mask": mask}
        if "Choice" in name:
            inputs = {key: value[None] for key, value in inputs.items()}
        with torch.no_grad():
            outputs = model(**inputs).to_tuple()
        model.save_pretrained(folder / name)
        torch.save({"inputs": inputs, "outputs": outputs}, folder / name / "outputs.pt")
    torch.save(names, folder / "heads.pt")
    return names


@pytest.fixture
def saved(tiny_config: dict[str, Any], tmp_path: Path) -> tuple[Path, dict[str, str]]:
    return tmp_path, save_all_heads(tiny_config, tmp_path)


def assert_is_complete(folder: Path) -> None:
    code = {path.name for path in folder.glob("*.py")}
    assert code == {"configuration_hfbert.py", "modeling_hfbert.py"}
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    assert {name: path.split("--")[-1] for name, path in auto_map.items()} == HFBertConfig().auto_map
    for name in code:
        assert (folder / name).read_bytes() == (Path(hfbert.__file__).parent / "model" / name).read_bytes()


def test_strangers_load_every_head_bit_for_bit_and_save_it_again(saved: tuple[Path, dict[str, str]]) -> None:
    folder, names = saved
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(folder / "modules")}
    command = [sys.executable, "-c", STRANGER, str(folder)]
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    for name in names.values():
        assert_is_complete(folder / name)
        assert_is_complete(folder / f"{name}-again")
