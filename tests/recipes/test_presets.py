"""Every YAML of the recipes is one that its recipe reads, and says whether it was run."""

import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import glue  # noqa: E402
import ner  # noqa: E402
import pretrain  # noqa: E402
import squad  # noqa: E402
import swag  # noqa: E402

from hfbert.training.options import parse_options  # noqa: E402

PRESETS = [
    (recipe, path)
    for recipe in (pretrain, glue, ner, squad, swag)
    for path in sorted((ROOT / "recipes" / recipe.__name__).glob("*.yaml"))
]


@pytest.mark.parametrize(("recipe", "path"), PRESETS, ids=[f"{r.__name__}-{p.stem}" for r, p in PRESETS])
def test_a_preset_is_read_and_says_whether_it_was_run(recipe: Any, path: Path) -> None:
    parts = parse_options(*get_type_hints(recipe.Recipe).values(), argv=["--config", str(path)])
    recipe.Recipe(*parts)
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    assert head.startswith("#")
    assert ("Not run" in head) is not path.stem.startswith("tiny")


def test_there_is_a_tiny_one_for_every_recipe_and_the_papers_rates_for_glue() -> None:
    assert {recipe.__name__ for recipe, path in PRESETS if path.stem.startswith("tiny")} == {
        *("pretrain", "glue", "ner", "squad", "swag")
    }
    path = str(ROOT / "recipes" / "glue" / "paper.yaml")
    parts = parse_options(*get_type_hints(glue.Recipe).values(), argv=["--config", path])
    assert glue.Recipe(*parts).tune.grid == [5e-5, 4e-5, 3e-5, 2e-5]
    assert len(glue.Recipe(*parts).task.task_name) == 9


def test_the_presets_of_pretraining_have_the_published_settings() -> None:
    """BERT (Devlin et al. 2018, A.2), whole words (Cui et al. 2019), MosaicBERT's YAML."""

    def read(name: str) -> Any:
        path = str(ROOT / "recipes" / "pretrain" / f"{name}.yaml")
        return pretrain.Recipe(
            *parse_options(*get_type_hints(pretrain.Recipe).values(), argv=["--config", path])
        )

    base, long, large = read("bert-base"), read("bert-base-512"), read("bert-large")
    assert base.train.max_steps + long.train.max_steps == 1_000_000
    assert base.train.global_batch_size == 256 and base.optim.learning_rate == 1e-4
    assert round(base.optim.warmup_ratio * base.train.max_steps, -2) == 10_000
    assert base.optim.optim == "adamw_bert" and (base.pairs.max_length, long.pairs.max_length) == (128, 512)
    assert base.model.max_position_embeddings == 512
    # what is left of the linear fall after nine tenths of the steps
    assert long.optim.learning_rate == pytest.approx(base.optim.learning_rate / 10)
    assert (large.model.num_hidden_layers, large.model.hidden_size) == (24, 1024)
    words = read("bert-wwm-zh")
    assert words.masking.whole_word_mask and words.optim.optim == "lamb"
    assert words.train.global_batch_size == 2560 and words.train.max_steps == 100_000
    mosaic = read("mosaicbert")
    assert mosaic.train.max_steps * mosaic.train.global_batch_size == 286_720_000
    assert mosaic.masking.mlm_probability == 0.3 and mosaic.pairs.pair_objective == "none"


def test_every_file_for_accelerate_is_yaml_with_the_counts_it_needs() -> None:
    for path in (ROOT / "recipes" / "accelerate").glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        assert content["num_processes"] >= content["num_machines"] >= 1, path
