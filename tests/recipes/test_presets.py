"""Every YAML of the fine-tuning recipes is one that its recipe reads."""

import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import glue  # noqa: E402
import ner  # noqa: E402
import squad  # noqa: E402
import swag  # noqa: E402

from hfbert.training.options import parse_options  # noqa: E402

PRESETS = [
    (recipe, path)
    for recipe in (glue, ner, squad, swag)
    for path in sorted((ROOT / "recipes" / recipe.__name__).glob("*.yaml"))
]


@pytest.mark.parametrize(("recipe", "path"), PRESETS, ids=[f"{r.__name__}-{p.stem}" for r, p in PRESETS])
def test_a_preset_is_read_and_says_whether_it_was_run(recipe: Any, path: Path) -> None:
    parts = parse_options(*get_type_hints(recipe.Recipe).values(), argv=["--config", str(path)])
    options = recipe.Recipe(*parts)
    assert options.optim.warmup_ratio == 0.1
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    assert head.startswith("#")
    assert ("Not run" in head) is not path.stem.startswith("tiny")


def test_there_is_a_tiny_one_for_every_recipe_and_the_papers_rates_for_glue() -> None:
    assert {recipe.__name__ for recipe, path in PRESETS if path.stem.startswith("tiny")} == {
        *("glue", "ner", "squad", "swag")
    }
    path = str(ROOT / "recipes" / "glue" / "paper.yaml")
    parts = parse_options(*get_type_hints(glue.Recipe).values(), argv=["--config", path])
    assert glue.Recipe(*parts).tune.grid == [5e-5, 4e-5, 3e-5, 2e-5]
    assert len(glue.Recipe(*parts).task.task_name) == 9
