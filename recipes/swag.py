"""A context and four endings -> which one goes on: multiple choice as in SWAG (Zellers et al. 2018).

accelerate launch recipes/swag.py --config recipes/swag/tiny.yaml
->  runs/next/model (for `from_pretrained`), results.json of every rate and seed, a table on the screen
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from accelerate.accelerator import Accelerator
from torch import nn
from transformers.utils import logging as transformers_logging

from hfbert import HFBertForMultipleChoice
from hfbert.data.features import FeatureCollator, FeatureRows
from hfbert.data.pydoc_labels import next_rows
from hfbert.data.swag import is_labelled, make_choices
from hfbert.data.tables import SourceOptions, Table, hold_out, read_dataset, read_table
from hfbert.data.tokenizer import load_tokenizer, save_tokenizer
from hfbert.hub import publish_task_model
from hfbert.training.comparison import show_runs
from hfbert.training.finetuning import FineTuneOptions, Job, best_result, run_job, write_scores
from hfbert.training.layers import LayerOptions
from hfbert.training.loop import TrainOptions, make_accelerator
from hfbert.training.metrics import ClassificationMetric
from hfbert.training.optim import OptimOptions
from hfbert.training.options import parse_options, run
from hfbert.training.prediction import predict_rows
from hfbert.training.run_folder import open_run
from hfbert.training.start import find_max_length

HEAD = HFBertForMultipleChoice
HUB_NAME = "allenai/swag"


@dataclass(frozen=True)
class Recipe:
    """All options of the run, each under the room it belongs to."""

    source: SourceOptions
    tune: FineTuneOptions
    layers: LayerOptions
    optim: OptimOptions
    train: TrainOptions


def main(argv: Sequence[str] | None = None) -> None:
    kinds = get_type_hints(Recipe).values()
    options = parse_options(*kinds, argv=argv, description="A context and four endings -> which one goes on.")
    recipe = Recipe(*options)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    accelerator = make_accelerator(recipe.train)
    parts = read_parts(recipe.source, recipe.tune.do_train)
    tokenizer = load_tokenizer(recipe.tune.tokenizer or recipe.tune.model_name_or_path)
    length = find_max_length(HEAD, recipe.tune.model_name_or_path, recipe.source.max_length)
    rows = {
        part: make_choices(table, tokenizer, length, has_labels=part != "test" or is_labelled(table))
        for part, table in parts.items()
    }
    output_dir = Path(recipe.train.output_dir)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            open_run(output_dir, options, recipe.tune.overwrite_output_dir)

    collate = FeatureCollator(tokenizer.pad_token_id)
    guess = partial(predict, accelerator, recipe, collate)
    job = Job(
        head=HEAD,
        save_tokenizer=partial(save_tokenizer, tokenizer),
        train_rows=FeatureRows(rows.get("train", [])),
        collate=collate,
        judge=lambda model: judge(guess(model, rows["validation"]), rows["validation"]),
        facts={
            "recipe": "swag",
            "task": recipe.source.task("next", "swag"),
            "model": recipe.tune.start,
            "train_rows": len(rows.get("train", [])),
            "eval_rows": len(rows["validation"]),
        },
    )
    model = run_job(accelerator, job, output_dir, recipe.tune, recipe.train, recipe.optim, recipe.layers)
    if "test" in rows:
        logits = guess(model, rows["test"])
        if accelerator.is_main_process:
            write_predictions(output_dir, logits, rows["test"])
    if accelerator.is_main_process:
        show_runs([output_dir])
        publish(recipe, output_dir)
    accelerator.end_training()


def read_parts(source: SourceOptions, do_train: bool) -> dict[str, Table]:
    """The tables of all parts, from files, a data set, the Hub, or the installed documentation."""
    files = {"train": source.train_file, "validation": source.validation_file, "test": source.test_file}
    parts = {part: read_table(file) for part, file in files.items() if file is not None}
    if source.dataset_name == "pydoc":
        rows = next_rows()
        parts = {part: Table(f"pydoc next ({part})", rows[part]) for part in rows} | parts
    elif not parts or source.dataset_name is not None:
        parts = read_dataset(source.dataset_name or HUB_NAME, source.dataset_config_name) | parts
    if do_train and "train" not in parts:
        raise ValueError(f"there is no training set among {', '.join(parts)}: give --train_file")
    if "validation" not in parts:
        if "train" not in parts:
            raise ValueError(f"there is no validation set among {', '.join(parts)}: give --validation_file")
        kept, held_out = hold_out(len(parts["train"]), source.validation_split_percentage)
        parts |= {"train": parts["train"].select(kept), "validation": parts["train"].select(held_out)}
    return {part: table.head(source.limit(part)) for part, table in parts.items()}


def predict(
    accelerator: Accelerator,
    recipe: Recipe,
    collate: FeatureCollator,
    model: nn.Module,
    rows: list[dict[str, Any]],
) -> np.ndarray:
    """The score of every ending, (B, 4)."""
    size = recipe.train.per_device_eval_batch_size
    return np.stack([logits for (logits,) in predict_rows(accelerator, model, rows, collate, size)])


def judge(logits: np.ndarray, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Accuracy, beside that of always naming the commonest place."""
    labels = [row["labels"] for row in rows]
    commonest = Counter(labels).most_common(1)[0][0]
    return {
        "metrics": score(logits.argmax(-1).tolist(), labels),
        "main_metric": "accuracy",
        "baseline": score([commonest] * len(labels), labels),
    }


def score(predictions: list[int], labels: list[int]) -> dict[str, float]:
    return ClassificationMetric().compute(predictions=predictions, references=labels)


def write_predictions(folder: Path, logits: np.ndarray, rows: list[dict[str, Any]]) -> None:
    """One JSON object for each row of the test set; its scores beside, if it is labelled."""
    guesses = logits.argmax(-1).tolist()
    lines = [
        json.dumps({"label": label, "logits": row}) + "\n"
        for label, row in zip(guesses, logits.tolist(), strict=True)
    ]
    (folder / "predictions_test.jsonl").write_text("".join(lines), encoding="utf-8")
    if "labels" in rows[0]:
        write_scores(folder / "results_test.json", score(guesses, [row["labels"] for row in rows]))


def publish(recipe: Recipe, folder: Path) -> None:
    """The card of the best model, and its upload if that was asked for."""
    tune, kind = recipe.tune, "AutoModelForMultipleChoice"
    if tune.do_train:
        name, result = tune.hub_model_id or folder.resolve().name, best_result(folder)
        publish_task_model(folder / "model", name, kind, result, tune.push_to_hub, tune.hub_private_repo)


if __name__ == "__main__":
    run(main)
