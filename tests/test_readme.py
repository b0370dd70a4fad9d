"""What the README says, held against the code: its flags, its files, its example."""

import re
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from transformers import BertTokenizer

from hfbert import HFBertConfig, HFBertForMaskedLM
from hfbert.training.options import RESERVED

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "recipes"))
import glue  # noqa: E402
import ner  # noqa: E402
import pretrain  # noqa: E402
import squad  # noqa: E402
import swag  # noqa: E402

# Flags of other programs, of the command, and those of the recipes that no dataclass holds.
OTHERS = {
    "quiet",
    "check",
    "output",
    "shard",
    "of",
    "config_file",
    "machine_rank",
    "main_process_ip",
    *RESERVED,
}


def test_it_can_be_read_in_one_sitting() -> None:
    assert README.count("\n") < 300


def test_every_flag_it_names_is_one_of_a_recipe() -> None:
    parts = [
        part
        for recipe in (pretrain, glue, ner, squad, swag)
        for part in get_type_hints(recipe.Recipe).values()
    ]
    options = {name for part in parts for name in get_type_hints(part)}
    named = set(re.findall(r"--([a-z][a-z0-9_]+)", README))
    assert named - OTHERS <= options, named - OTHERS - options


def test_every_file_of_its_tree_exists_and_every_file_is_in_it() -> None:
    tree = README.split("## The tree")[1].split("```")[1]
    named = set(re.findall(r"\b[a-z_]+\.py\b", tree)) - {"__init__.py"}
    present = {
        path.name
        for folder in ("hfbert", "recipes")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert named == present


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)


def test_its_first_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    tokenizer.save_pretrained(tmp_path / "runs/tiny/model")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = HFBertConfig(vocab_size=len(pieces), **shape)
    HFBertForMaskedLM(config).save_pretrained(tmp_path / "runs/tiny/model")
    monkeypatch.chdir(tmp_path)
    exec(README.split("```python\n")[1].split("```")[0], {})
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 5 and all(re.fullmatch(r"\S+ +0\.\d{3}", line) for line in lines)
