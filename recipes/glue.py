"""Labelled texts -> a sentence classifier or scorer: GLUE's tasks (Wang et al. 2018), or tables of one's own.

accelerate launch recipes/glue.py --config recipes/glue/tiny-package.yaml
->  runs/package/model (for `from_pretrained`), results.json of every rate and seed, a table on the screen
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
from accelerate.accelerator import Accelerator
from sklearn.metrics import confusion_matrix
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from hfbert import HFBertForSequenceClassification
from hfbert.data.classification import (
    Columns,
    Labels,
    find_columns,
    is_labelled,
    learn_labels,
    make_features,
    order_labels,
    read_labels,
)
from hfbert.data.features import FeatureCollator, FeatureRows
from hfbert.data.glue import (
    TASKS,
    read_glue,
    rename_columns,
    submission_files,
    submission_rows,
    write_submission,
)
from hfbert.data.pydoc_labels import package_rows, pair_rows
from hfbert.data.tables import SourceOptions, Table, hold_out, read_dataset, read_table
from hfbert.data.tokenizer import load_tokenizer, save_tokenizer
from hfbert.hub import publish_task_model
from hfbert.training.comparison import show_runs
from hfbert.training.finetuning import FineTuneOptions, Job, best_result, run_job, write_scores
from hfbert.training.layers import LayerOptions
from hfbert.training.loop import TrainOptions, make_accelerator
from hfbert.training.metrics import ClassificationMetric, GlueMetric
from hfbert.training.optim import OptimOptions
from hfbert.training.options import parse_options, run
from hfbert.training.prediction import predict_rows
from hfbert.training.run_folder import open_run
from hfbert.training.start import find_max_length, known_labels

HEAD = HFBertForSequenceClassification
# What the paper reports of a task (table 1); accuracy for the others.
MAIN_METRICS = {"cola": "matthews_correlation", "stsb": "spearmanr", "mrpc": "f1", "qqp": "f1"}
Features = list[dict[str, Any]]
PYDOC = {"package": package_rows, "pair": pair_rows}


@dataclass(kw_only=True)
class TaskOptions:
    """Which task, or which columns."""

    task_name: list[str] | None = None  # GLUE tasks, or "all"; none: a table of one's own
    text_column: str | None = None  # column of the text, by name, or by number from 0 in files without names
    pair_column: str | None = None  # column of the second text
    label_column: str | None = None  # column of the label
    problem_type: Literal["single_label_classification", "regression"] | None = None  # none: by the labels
    submit: bool = False  # write submission.zip for the GLUE server

    def __post_init__(self) -> None:
        if self.task_name == ["all"]:
            self.task_name = list(TASKS)
        for name in self.task_name or []:
            if name not in TASKS:
                raise ValueError(f"task_name={name}: choose from {', '.join(TASKS)}, or all")
        if self.submit and self.task_name is None:
            raise ValueError("submit=true is for GLUE's tasks: give --task_name")


@dataclass(frozen=True)
class Recipe:
    """All options of the run, each under the room it belongs to."""

    source: SourceOptions
    task: TaskOptions
    tune: FineTuneOptions
    layers: LayerOptions
    optim: OptimOptions
    train: TrainOptions


@dataclass(frozen=True)
class Texts:
    """The parts of a task, their columns, and its labels in the order that the model has them."""

    name: str
    parts: dict[str, Table]
    columns: Columns
    labels: Labels
    canonical: tuple[str, ...]  # the labels in the order that the scores have them

    @property
    def evaluations(self) -> list[str]:
        return [name for name in self.parts if name.startswith("validation")]


def main(argv: Sequence[str] | None = None) -> None:
    kinds = get_type_hints(Recipe).values()
    options = parse_options(*kinds, argv=argv, description="Labelled texts -> a sentence classifier.")
    recipe = Recipe(*options)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    accelerator = make_accelerator(recipe.train)
    task_names: list[Any] = recipe.task.task_name or [None]
    tokenizer = load_tokenizer(recipe.tune.tokenizer or recipe.tune.model_name_or_path)
    tasks = [read_texts(recipe, name) for name in task_names]
    for table in (table for texts in tasks for table in texts.parts.values() if table.num_dropped):
        accelerator.print(f"warning: {table.name}: {table.num_dropped} broken lines left out")
    # All features are made before anything is written: they look at every cell.
    rows = [{part: make_rows(recipe, texts, part, tokenizer) for part in texts.parts} for texts in tasks]
    output_dir = Path(recipe.train.output_dir)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            open_run(output_dir, options, recipe.tune.overwrite_output_dir)
    submission: dict[str, list[str]] = {}
    for texts, features in zip(tasks, rows, strict=True):
        job = make_job(accelerator, recipe, texts, tokenizer, features)
        submission |= run_task(accelerator, recipe, texts, job, features, output_dir / texts.name)
    if accelerator.is_main_process:
        finish(recipe, output_dir, tasks, submission)
    accelerator.end_training()


def read_texts(recipe: Recipe, task_name: str | None) -> Texts:
    """The tables of a task, checked from the first to the last cell before anything is trained."""
    parts = read_parts(recipe, task_name)
    if recipe.tune.do_train and "train" not in parts:
        raise ValueError(
            f"{task_name or 'the data'}: no training set among {', '.join(parts)}; give --train_file"
        )
    if "validation" not in parts and "validation_matched" not in parts:
        if "train" not in parts:
            raise ValueError(f"{task_name or 'the data'}: no validation set; give --validation_file")
        kept, held_out = hold_out(len(parts["train"]), recipe.source.validation_split_percentage)
        parts |= {"train": parts["train"].select(kept), "validation": parts["train"].select(held_out)}
    parts = {name: table.head(recipe.source.limit(name.partition("_")[0])) for name, table in parts.items()}
    columns, canonical = describe_task(recipe, task_name, parts)
    known = known_labels(HEAD, recipe.tune.model_name_or_path)
    labels = Labels(order_labels(canonical, known))
    name = task_name or recipe.source.task(recipe.source.dataset_config_name or "", "texts")
    return Texts(name, parts, columns, labels, canonical)


def read_parts(recipe: Recipe, task_name: str | None) -> dict[str, Table]:
    source, task = recipe.source, recipe.task
    files = {"train": source.train_file, "validation": source.validation_file, "test": source.test_file}
    given = {part: file for part, file in files.items() if file is not None}
    has_names = not (task.text_column or "").isdecimal()
    tables = {part: read_table(file, None if has_names else []) for part, file in given.items()}
    if source.dataset_name == "pydoc":
        name = source.dataset_config_name
        if name not in PYDOC:
            raise ValueError(f"dataset_config_name={name}: for pydoc choose from {', '.join(PYDOC)}")
        rows = PYDOC[name]()
        return {part: Table(f"pydoc {name} ({part})", rows[part]) for part in rows} | tables
    if task_name is not None:
        tables = {part: rename_columns(task_name, table) for part, table in tables.items()}
        return tables if "train" in tables else read_glue(task_name, source.dataset_name) | tables
    if source.dataset_name is not None:
        return read_dataset(source.dataset_name, source.dataset_config_name) | tables
    if not tables:
        raise ValueError("no rows are named: give --task_name, --dataset_name or --train_file")
    return tables


def describe_task(
    recipe: Recipe, task_name: str | None, parts: dict[str, Table]
) -> tuple[Columns, tuple[str, ...]]:
    """The columns, and the labels: GLUE's, the training set's, or those of a model that is only measured."""
    if task_name is not None:
        pair = "pair" if len(TASKS[task_name].columns) == 2 else None
        return Columns("text", pair, "label"), TASKS[task_name].labels
    task = recipe.task
    first = parts.get("train", parts["validation"])
    columns = find_columns(first, task.text_column, task.pair_column, task.label_column)
    known = known_labels(HEAD, recipe.tune.model_name_or_path)
    if not recipe.tune.do_train and known is not None:
        return columns, tuple(known.values())
    is_regression = None if task.problem_type is None else task.problem_type == "regression"
    return columns, learn_labels(first, columns, is_regression).names


def run_task(
    accelerator: Accelerator,
    recipe: Recipe,
    texts: Texts,
    job: Job,
    rows: dict[str, Features],
    folder: Path,
) -> dict[str, list[str]]:
    """Train and measure one task; what it predicts for its test parts, as files of the submission."""
    model = run_job(accelerator, job, folder, recipe.tune, recipe.train, recipe.optim, recipe.layers)
    files = {}
    for part in (part for part in texts.parts if part.startswith("test")):
        logits = predict(accelerator, recipe, model, rows[part], job.collate)
        predictions = read_predictions(texts, logits)
        if accelerator.is_main_process:
            write_predictions(folder / f"predictions_{part}.jsonl", predictions, logits)
            if is_labelled(texts.parts[part], texts.columns):
                truths = read_labels(texts.parts[part], texts.columns, texts.labels)
                scores = choose_metric(texts).compute(
                    predictions=decide(texts, logits), references=to_canonical(texts, truths)
                )
                write_scores(folder / f"results_{part}.json", scores)
        if recipe.task.submit:
            name, lines = submission_rows(texts.name, part, predictions)
            files[name] = lines
    return files


def make_job(
    accelerator: Accelerator,
    recipe: Recipe,
    texts: Texts,
    tokenizer: PreTrainedTokenizerBase,
    rows: dict[str, Features],
) -> Job:
    collate = FeatureCollator(tokenizer.pad_token_id)
    classes = {"problem_type": "single_label_classification"}
    scores = {"problem_type": "regression", "num_labels": 1}
    return Job(
        head=HEAD,
        names=texts.labels.names,
        config=scores if texts.labels.is_regression else classes,
        save_tokenizer=partial(save_tokenizer, tokenizer),
        train_rows=FeatureRows(rows.get("train", [])),
        collate=collate,
        judge=partial(judge, accelerator, recipe, texts, rows, collate),
        facts={
            "recipe": "glue",
            "task": texts.name,
            "model": recipe.tune.start,
            "train_rows": len(rows.get("train", [])),
            "eval_rows": len(rows[texts.evaluations[0]]),
        },
    )


def make_rows(recipe: Recipe, texts: Texts, part: str, tokenizer: PreTrainedTokenizerBase) -> Features:
    """Features of a part; without labels, and of any text, for a test set."""
    length = find_max_length(HEAD, recipe.tune.model_name_or_path, recipe.source.max_length)
    table, is_test = texts.parts[part], part.startswith("test")
    labels = None if is_test else read_labels(table, texts.columns, texts.labels)
    return make_features(table, texts.columns, labels, tokenizer, length, may_be_empty=is_test)


def predict(
    accelerator: Accelerator,
    recipe: Recipe,
    model: nn.Module,
    rows: Features,
    collate: FeatureCollator,
) -> np.ndarray:
    """Logits of every row, (B, L), or its score, (B, 1)."""
    size = recipe.train.per_device_eval_batch_size
    return np.stack([logits for (logits,) in predict_rows(accelerator, model, rows, collate, size)])


def judge(
    accelerator: Accelerator,
    recipe: Recipe,
    texts: Texts,
    rows: dict[str, Features],
    collate: FeatureCollator,
    model: nn.Module,
) -> dict[str, Any]:
    """The scores of every evaluation part, and what the commonest label of training would score."""
    found: dict[str, Any] = {"metrics": {}, "main_metric": main_metric(texts), "baseline": {}}
    for part in texts.evaluations:
        guesses = decide(texts, predict(accelerator, recipe, model, rows[part], collate))
        truths = to_canonical(texts, [row["labels"] for row in rows[part]])
        ending = part.removeprefix("validation").replace("_matched", "")  # leaves "_mismatched"
        metric = choose_metric(texts)
        scores = metric.compute(predictions=guesses, references=truths)
        found["metrics"] |= {f"{name}{ending}": score for name, score in scores.items()}
        constant = [guess_constant(texts, rows.get("train", rows[part]))] * len(truths)
        baseline = metric.compute(predictions=constant, references=truths)
        found["baseline"] |= {f"{name}{ending}": score for name, score in baseline.items()}
        if not texts.labels.is_regression and "confusion" not in found:
            counts = confusion_matrix(truths, guesses, labels=range(len(texts.canonical)))
            found["confusion"] = {"labels": list(texts.canonical), "matrix": counts.tolist()}
    return found


def choose_metric(texts: Texts) -> GlueMetric | ClassificationMetric:
    if texts.name in TASKS:
        return GlueMetric(texts.name)
    return GlueMetric("stsb") if texts.labels.is_regression else ClassificationMetric()


def main_metric(texts: Texts) -> str:
    return "spearmanr" if texts.labels.is_regression else MAIN_METRICS.get(texts.name, "accuracy")


def decide(texts: Texts, logits: np.ndarray) -> list[int | float]:
    """Logits to labels in the order of the scores, or to scores."""
    if texts.labels.is_regression:
        return logits[:, 0].tolist()
    return to_canonical(texts, logits.argmax(-1).tolist())


def to_canonical(texts: Texts, labels: Sequence[int | float]) -> list[int | float]:
    """A checkpoint may have the labels in an order of its own, and F1 asks which one is positive."""
    if texts.labels.is_regression:
        return list(labels)
    return [texts.canonical.index(texts.labels.names[int(label)]) for label in labels]


def guess_constant(texts: Texts, rows: Features) -> int | float:
    """The best guess without reading: the commonest label, or the mean score."""
    labels = to_canonical(texts, [row["labels"] for row in rows])
    return float(np.mean(labels)) if texts.labels.is_regression else Counter(labels).most_common(1)[0][0]


def read_predictions(texts: Texts, logits: np.ndarray) -> list[Any]:
    """The names of the predicted labels, or the scores."""
    guesses = decide(texts, logits)
    return guesses if texts.labels.is_regression else [texts.canonical[int(guess)] for guess in guesses]


def write_predictions(path: Path, predictions: list[Any], logits: np.ndarray) -> None:
    """One JSON object for each row of the part, in its order."""
    rows = zip(predictions, logits.tolist(), strict=True)
    lines = [json.dumps({"label": label, "logits": row}, ensure_ascii=False) + "\n" for label, row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def finish(recipe: Recipe, output_dir: Path, tasks: list[Texts], submission: dict[str, list[str]]) -> None:
    """Show the table of all tasks, write cards, upload and write the zip for the server as asked for."""
    show_runs([output_dir])
    tune = recipe.tune
    for texts in tasks if tune.do_train else []:
        name = tune.hub_model_id or output_dir.resolve().name
        name = name if len(tasks) == 1 else f"{name}-{texts.name}"
        folder = output_dir / texts.name
        kind = "AutoModelForSequenceClassification"
        result = best_result(folder)
        publish_task_model(folder / "model", name, kind, result, tune.push_to_hub, tune.hub_private_repo)
    if recipe.task.submit:
        write_submission(output_dir / "submission.zip", submission)
        absent = [name for name in submission_files() if name not in submission]
        print(f"submission: {output_dir / 'submission.zip'}")
        if absent:
            print(f"warning: the server asks for {', '.join(absent)} as well")


if __name__ == "__main__":
    run(main)
