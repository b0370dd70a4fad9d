"""Turn a job - a model to start from, rows, a metric - into one run for each learning rate and seed.

grid [5e-5, 2e-5], seeds 2  ->  lr-5e-05-seed-42 lr-5e-05-seed-43 lr-2e-05-seed-42 lr-2e-05-seed-43, each with
metrics.jsonl and results.json; model/ of the best; a run that has its results is not run again
"""

import json
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.accelerator import Accelerator
from torch import Tensor, nn

from hfbert.training.checkpoint import latest_checkpoint
from hfbert.training.layers import LayerOptions, prepare_layers, rate_factors
from hfbert.training.loop import EpochRows, TrainingLoop, TrainOptions
from hfbert.training.optim import OptimOptions
from hfbert.training.start import load_head

IGNORED_LABEL = -100
RESULTS = "results.json"


@dataclass(kw_only=True)
class FineTuneOptions:
    """What is fine-tuned, and how often."""

    model_name_or_path: str  # a pretrained or fine-tuned BERT: folder or name on the Hub
    tokenizer: str | None = None  # name or path of a tokenizer; none: the model's
    random_weights: bool = False  # take the model's shape only, to see what pretraining was worth
    do_train: bool = True  # false: measure and predict with the model as it is
    grid: list[float] | None = None  # learning rates to try, in the place of learning_rate
    seeds: int = 1  # runs for each rate, with seed, seed + 1 and so on
    overwrite_output_dir: bool = False  # throw away what is in output_dir
    push_to_hub: bool = False  # upload output_dir/model when the run ends
    hub_model_id: str | None = None  # repository to upload to; none: the name of output_dir
    hub_private_repo: bool = False  # make a new repository private

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds={self.seeds} must be 1 or more")
        if self.grid is not None and (not self.grid or not all(0 < rate < math.inf for rate in self.grid)):
            raise ValueError(f"grid={self.grid}: give learning rates above 0")
        if self.random_weights and not self.do_train:
            raise ValueError("random_weights with do_train=false measures nothing: drop one of them")

    @property
    def start(self) -> str:
        """How the model is called in a table: "tiny/model" for /home/me/runs/tiny/model."""
        name = "/".join(self.model_name_or_path.rstrip("/").split("/")[-2:])
        return f"{name}, random weights" if self.random_weights else name


class LabelTask:
    """The loss of a head with one kind of label, for `TrainingLoop`: a sum over labels and their number."""

    def count_items(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        labels = batch.get("labels", batch.get("start_positions"))
        assert labels is not None, "rows to train on have labels"
        return {"num_items_in_batch": (labels != IGNORED_LABEL).sum()}

    def measure(self, outputs: Any, batch: dict[str, Tensor], items: dict[str, Tensor]) -> dict[str, Tensor]:
        (count,) = self.count_items(batch).values()
        return {"loss": outputs.loss * items["num_items_in_batch"], "items": count}

    def summarise(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / max(sums["items"], 1)}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a recipe hands over: a head to train, what it learns from, and how it is judged.

    `judge` gives what goes into results.json: "metrics" and the name of the "main_metric" at least. It runs
    on all processes.
    """

    head: Any  # class of the model
    names: tuple[str, ...] = ()  # its labels, where it has some
    config: dict[str, Any] = field(default_factory=dict)  # what the task changes in its configuration
    save_tokenizer: Callable[[Path], None]
    train_rows: EpochRows
    collate: Any
    judge: Callable[[nn.Module], dict[str, Any]]
    facts: dict[str, Any]  # what else goes into results.json: recipe, task, number of rows

    def load_model(self, options: FineTuneOptions, checkpoint: Path | None = None) -> Any:
        """A new model, or one from a folder of this job."""
        if checkpoint is not None:
            return load_head(self.head, str(checkpoint), self.names, **self.config)
        return load_head(
            self.head,
            options.model_name_or_path,
            self.names,
            random_weights=options.random_weights,
            needs_head=not options.do_train,
            **self.config,
        )

    def save(self, model: Any, folder: Path) -> None:
        model.save_pretrained(folder)
        self.save_tokenizer(folder)


@dataclass(frozen=True)
class Trial:
    """One run of a job."""

    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"lr-{self.learning_rate:g}-seed-{self.seed}"


def list_trials(options: FineTuneOptions, train: TrainOptions, optim: OptimOptions) -> list[Trial]:
    rates = options.grid or [optim.learning_rate]
    seeds = range(train.seed, train.seed + options.seeds)
    return [Trial(rate, seed) for rate in dict.fromkeys(rates) for seed in seeds]


def run_job(
    accelerator: Accelerator,
    job: Job,
    folder: Path,
    options: FineTuneOptions,
    train: TrainOptions,
    optim: OptimOptions,
    layers: LayerOptions,
) -> nn.Module:
    """Run what has no results yet and keep the best model in `folder`/model; that model.

    Each run may be stopped at any time and goes on from its newest complete checkpoint. With `do_train` off
    there is one, `folder`/evaluation, that judges the model as it is.
    """
    if not options.do_train:
        model = job.load_model(options).to(accelerator.device)
        started = time.perf_counter()
        _write_results(accelerator, folder / "evaluation", job.facts | job.judge(model), started)
        return model
    for trial in list_trials(options, train, optim):
        if read_results(folder / trial.name) is None:
            accelerator.print(f"{folder.name}: {trial.name}")
            own = replace(train, output_dir=str(folder / trial.name), seed=trial.seed)
            rate = replace(optim, learning_rate=trial.learning_rate)
            _run_trial(accelerator, job, options, own, rate, layers)
        if accelerator.is_main_process:
            _keep_best(folder)
    accelerator.wait_for_everyone()
    return job.load_model(options, folder / "model").to(accelerator.device)


def _run_trial(
    accelerator: Accelerator,
    job: Job,
    options: FineTuneOptions,
    train: TrainOptions,
    optim: OptimOptions,
    layers: LayerOptions,
) -> None:
    started = time.perf_counter()
    folder = Path(train.output_dir)
    judged: dict[str, Any] = {}

    def evaluate(model: nn.Module) -> dict[str, float]:
        judged.update(job.judge(model))
        return judged["metrics"]

    loop = _make_loop(accelerator, job, options, train, optim, layers, evaluate)
    loop.run()
    if not judged:  # killed after its last checkpoint, so that nothing was left to train
        evaluate(loop.model)
    if accelerator.is_main_process:
        job.save(accelerator.unwrap_model(loop.model), folder / "model")
    facts = job.facts | {
        "seed": train.seed,
        "learning_rate": optim.learning_rate,
        "num_train_epochs": train.num_train_epochs,
        "steps": loop.position.step,
    }
    del loop
    accelerator.free_memory()
    _write_results(accelerator, folder, facts | judged, started)
    if accelerator.is_main_process:
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)  # the results say that this run is over


def _make_loop(
    accelerator: Accelerator,
    job: Job,
    options: FineTuneOptions,
    train: TrainOptions,
    optim: OptimOptions,
    layers: LayerOptions,
    evaluate: Callable[[nn.Module], dict[str, float]],
) -> TrainingLoop:
    """The model, new or from the newest complete checkpoint of this run, and the loop that trains it."""
    folder = Path(train.output_dir)
    checkpoint, passed_over = latest_checkpoint(folder)
    for line in passed_over:
        accelerator.print(f"warning: {line}")
    torch.manual_seed(train.seed)
    model = job.load_model(options, checkpoint)
    # A model from a checkpoint has its new layers already.
    wanted = layers if checkpoint is None else replace(layers, reinit_layers=0)
    for line in prepare_layers(model, wanted, model.config.initializer_range):
        accelerator.print(line)
    if train.gradient_checkpointing:
        model.gradient_checkpointing_enable()

    def save_model(partial: Path) -> None:
        job.save(accelerator.unwrap_model(loop.model), partial)

    loop = TrainingLoop(
        accelerator,
        model,
        job.train_rows,
        job.collate,
        LabelTask(),
        train,
        optim,
        save_model,
        evaluate,
        rate_factors=rate_factors(model, layers.layerwise_lr_decay),
    )
    accelerator.init_trackers(folder.name)
    if checkpoint is not None:
        warning = loop.resume(checkpoint)
        accelerator.print(f"continuing from {checkpoint}{f' ({warning})' if warning else ''}")
    return loop


def _keep_best(folder: Path) -> None:
    """Move the model of the best run to `folder`/model and drop the others; nothing where that is done."""
    best = _find_best(folder)
    for place in (path.parent for path in folder.glob(f"lr-*/{RESULTS}")):
        if place == best and (place / "model").exists():
            shutil.rmtree(folder / "model", ignore_errors=True)
            (place / "model").rename(folder / "model")
        shutil.rmtree(place / "model", ignore_errors=True)


def _find_best(folder: Path) -> Path:
    places = [path.parent for path in sorted(folder.glob(f"*/{RESULTS}"))]
    return max(places, key=lambda place: score_of(read_results(place) or {}))


def best_result(folder: Path) -> dict[str, Any]:
    """The results of the run whose model is in `folder`/model."""
    return read_results(_find_best(folder)) or {}


def score_of(result: dict[str, Any]) -> float:
    """The number that runs are compared by; more is better."""
    return float(result["metrics"][result["main_metric"]])


def read_results(folder: Path) -> dict[str, Any] | None:
    path = folder / RESULTS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _write_results(accelerator: Accelerator, folder: Path, results: dict[str, Any], started: float) -> None:
    if accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_scores(folder / RESULTS, results | {"seconds": round(time.perf_counter() - started, 1)})
    accelerator.wait_for_everyone()


def write_scores(path: Path, scores: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(scores, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)
