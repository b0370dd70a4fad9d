"""Turn an output folder into a run: a new one, the same one continued, or a refusal.

runs/tiny holding recipe.yaml of the same recipe      ->  True: go on
runs/tiny holding another recipe, or something else   ->  ValueError: one line that says what differs
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import yaml

from hfbert.training.options import resolve, save_resolved

RECIPE = "recipe.yaml"
# What may change between the pieces of a run: none of it changes a number.
FREE = {
    "dataloader_num_workers",
    "grid",  # names other runs in the folder, and does not touch those that are there
    "hub_model_id",
    "hub_private_repo",
    "output_dir",
    "overwrite_output_dir",
    "per_device_eval_batch_size",
    "push_to_hub",
    "report_to",
    "save_steps",
    "save_total_limit",
    "seeds",
    "submit",
}


def make_folder(output_dir: Path) -> None:
    """Make the folder of a run; ValueError with the flag where that cannot be done."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--output_dir {output_dir} cannot be made ({error.strerror}): name another"
        ) from error


def check_run(output_dir: Path, options: Sequence[object], overwrite: bool) -> bool:
    """Whether the folder holds this very recipe, to be continued; nothing is written.

    ValueError when it holds another run (naming a key that differs), other files, or cannot be written.
    """
    standing = next(path for path in (output_dir, *output_dir.absolute().parents) if path.exists())
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        raise ValueError(f"--output_dir {output_dir} cannot be written: {standing} does not allow it")
    recorded = output_dir / RECIPE
    if not recorded.exists():
        if output_dir.exists() and any(output_dir.iterdir()):
            raise ValueError(f"--output_dir {output_dir} holds other files and no run: name an empty folder")
        return False
    here = yaml.safe_load(resolve(options))
    # A run of an older version does not know newer options: they had no effect then, nor have their defaults.
    there = _find_defaults(options) | yaml.safe_load(recorded.read_text(encoding="utf-8"))
    differing = [key for key in sorted(here) if key not in FREE and there.get(key) != here[key]]
    if differing and not overwrite:
        key = differing[0]
        raise ValueError(
            f"--output_dir {output_dir} holds a run of another recipe ({key}: {there.get(key)} there, "
            f"{here[key]} here): name another folder, or add --overwrite_output_dir true"
        )
    return not overwrite


def _find_defaults(options: Sequence[object]) -> dict[str, Any]:
    """The default of every option that has one, as a YAML file holds it."""
    found = {field.name: field.default for part in options for field in fields(part)}  # type: ignore[arg-type]
    return {name: default for name, default in found.items() if default is not MISSING}


def open_run(output_dir: Path, options: Sequence[object], overwrite: bool) -> None:
    """Make the folder of a run with its recipe in it, or go on with the one that is there.

    ValueError as `check_run` has it.
    """
    continues = check_run(output_dir, options, overwrite)
    if output_dir.exists() and not continues:
        shutil.rmtree(output_dir)
    make_folder(output_dir)
    save_resolved(options, output_dir / RECIPE)
