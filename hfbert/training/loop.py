"""Turn a model, rows and a budget into trained weights, one global batch at a time.

model, rows, max_steps 1000  ->  1,000 updates, metrics.jsonl, checkpoint-500, checkpoint-1000

The order of samples is a function of (seed, epoch), the place in it is counted in samples, and a loss is
divided by the items of the whole global batch: processes, micro-batches and a resume change none of it.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from accelerate.accelerator import Accelerator
from accelerate.utils import ProjectConfiguration, broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from hfbert.training.checkpoint import (
    capture_random_state,
    load_training_state,
    prune_checkpoints,
    restore_random_state,
    save_checkpoint,
    save_training_state,
)
from hfbert.training.optim import OptimOptions, Schedule, build_optimizer
from hfbert.training.order import BatchRamp, HandBatches, deal, epoch_order
from hfbert.training.report import MetricsLog

STATE_FILE = "training_state.pt"


@dataclass(kw_only=True)
class TrainOptions:
    """How a run goes; names are those of `transformers.TrainingArguments` wherever it has one."""

    output_dir: str  # folder of the run; the same command continues what is there
    global_batch_size: int  # samples an update, over all processes and micro-batches
    per_device_train_batch_size: int | None = None  # samples a process takes at once; none: its whole share
    initial_batch_size: int | None = None  # samples of the first update, which grow to global_batch_size
    batch_ramp_ratio: float = 0.5  # share of max_steps over which they grow
    per_device_eval_batch_size: int = 64  # samples a process evaluates at once
    max_steps: int | None = None  # budget in updates
    num_train_epochs: float | None = None  # budget in passes over the data
    max_minutes: float | None = None  # budget in minutes of training; the schedule is laid over it
    seed: int = 42  # of initial weights, order, pairs, masks and dropout
    logging_steps: int = 50  # updates between lines of metrics.jsonl
    eval_steps: int = 500  # updates between evaluations; the last update is always followed by one
    save_steps: int = 500  # updates between checkpoints
    save_total_limit: int = 2  # checkpoints kept
    bf16: bool = False  # compute in bfloat16, on CPU or GPU
    fp16: bool = False  # compute in float16 with a loss scale, on GPU only
    gradient_checkpointing: bool = False  # less memory, about a third more time
    dataloader_num_workers: int = 0  # processes that prepare batches
    num_threads: int | None = None  # CPU threads of a process; none: its share of the cores
    report_to: Literal["tensorboard", "trackio", "wandb", "none"] = "tensorboard"  # where metrics also go

    def __post_init__(self) -> None:
        budgets = [self.max_steps, self.num_train_epochs, self.max_minutes]
        if sum(budget is not None for budget in budgets) != 1:
            raise ValueError("max_steps, num_train_epochs, max_minutes: give exactly one of them")
        if self.initial_batch_size is not None:
            self._check_ramp()
        if self.bf16 and self.fp16:
            raise ValueError("bf16, fp16: give one of them")
        least = dict.fromkeys(("dataloader_num_workers", "seed"), 0)
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if field.name in ("num_train_epochs", "max_minutes", "batch_ramp_ratio"):
                if is_number and not 0 < value < math.inf:
                    raise ValueError(f"{field.name}={value} must be above 0")
            elif is_number and value < least.get(field.name, 1):
                raise ValueError(f"{field.name}={value} must be {least.get(field.name, 1)} or more")

    def _check_ramp(self) -> None:
        """A growing batch is a function of the step, so the steps must be counted and cut alike."""
        micro, first = self.per_device_train_batch_size, self.initial_batch_size or 0
        if self.max_steps is None or micro is None:
            raise ValueError("initial_batch_size needs max_steps and per_device_train_batch_size: give both")
        if first > self.global_batch_size or first % micro:
            raise ValueError(
                f"initial_batch_size={first} must be a multiple of per_device_train_batch_size={micro}, at"
                f" most global_batch_size={self.global_batch_size}"
            )


class Task(Protocol):
    """What the loop asks of a task: how its loss is normalised and what is worth measuring."""

    def count_items(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the losses are divided by, under the names of the model's keyword arguments."""

    def measure(self, outputs: Any, batch: dict[str, Tensor], items: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums over a batch, to be added up over batches and processes."""

    def summarise(self, sums: dict[str, float]) -> dict[str, float]:
        """Metrics from the added sums."""


class EpochRows(Protocol):
    """A map-style data set whose samples are a function of the epoch."""

    def __len__(self) -> int: ...
    def __getitem__(self, sample: int, /) -> Any: ...
    def set_epoch(self, epoch: int) -> None: ...


def make_accelerator(options: TrainOptions) -> Accelerator:
    """Precision and trackers as asked; ValueError for fp16 without a GPU, which accelerate accepts."""
    precision = "bf16" if options.bf16 else "fp16" if options.fp16 else None  # none: as launched
    tracker = None if options.report_to == "none" else options.report_to
    if tracker is not None and find_spec(tracker) is None:
        raise ValueError(f"report_to={tracker}: not installed; pip install {tracker}, or --report_to none")
    folders = ProjectConfiguration(options.output_dir, logging_dir=f"{options.output_dir}/logs")
    num_launched = int(os.environ.get("WORLD_SIZE", "1"))
    # Without being told, accelerate leaves several processes without GPUs to train alone, each the same.
    is_cpu = num_launched > 1 and not torch.cuda.is_available()
    accelerator = Accelerator(cpu=is_cpu, mixed_precision=precision, log_with=tracker, project_config=folders)
    if accelerator.num_processes != num_launched:
        raise ValueError(
            f"{num_launched} processes were launched and {accelerator.num_processes} know of each other: "
            "check the launcher's configuration"
        )
    # `accelerate launch` without a configuration leaves a process one thread, whatever the machine has.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(options.num_threads or max(1, share))
    if accelerator.mixed_precision == "fp16" and accelerator.device.type == "cpu":
        raise ValueError("fp16 needs a GPU: on a CPU use --bf16 true, or neither for float32")
    share_of_global_batch(options, accelerator.num_processes)
    return accelerator


def share_of_global_batch(options: TrainOptions, num_processes: int) -> int:
    """Samples a process takes at once; ValueError when the global batch cannot be dealt out evenly."""
    size = options.global_batch_size
    if options.per_device_train_batch_size is None:
        micro, rest = divmod(size, num_processes)
        wanted = f"{num_processes} processes"
    else:
        micro = options.per_device_train_batch_size
        rest = size % (micro * num_processes)
        wanted = f"per_device_train_batch_size={micro} x {num_processes} processes"
    if rest or micro == 0:
        raise ValueError(f"global_batch_size={size} is not a multiple of {wanted}")
    return micro


@dataclass
class Position:
    """Where a run stands: updates made, the epoch, samples of it already used, seconds of training."""

    step: int = 0
    epoch: int = 0
    sample: int = 0
    seconds: float = 0.0


class TrainingLoop:
    """One run. `collate` and `rows` are told the epoch; `save_model` writes what `from_pretrained` reads."""

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        rows: EpochRows,
        collate: Any,
        task: Task,
        options: TrainOptions,
        optim_options: OptimOptions,
        save_model: Callable[[Path], None],
        evaluate: Callable[[nn.Module], dict[str, float]],
        rate_factors: Mapping[str, float] | None = None,
    ) -> None:
        self.accelerator = accelerator
        self.rows, self.collate, self.task = rows, collate, task
        self.options, self.optim_options = options, optim_options
        self.save_model, self.evaluate = save_model, evaluate
        self.micro = share_of_global_batch(options, accelerator.num_processes)
        self.schedule = self._make_schedule()
        optimizer = build_optimizer(model, optim_options, rate_factors)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.position = Position()
        self.sums: dict[str, Tensor] = {}
        self.interval_seconds = 0.0
        torch.manual_seed(options.seed + 1 + accelerator.process_index)  # dropout differs between ranks

    def _make_schedule(self) -> Schedule:
        options = self.options
        if options.max_minutes is not None:
            return Schedule(self.optim_options, max_seconds=60 * options.max_minutes)
        if options.max_steps is not None:
            return Schedule(self.optim_options, max_steps=options.max_steps)
        assert options.num_train_epochs is not None  # TrainOptions has made sure
        steps_an_epoch = math.ceil(len(self.rows) / options.global_batch_size)
        return Schedule(self.optim_options, max_steps=math.ceil(options.num_train_epochs * steps_an_epoch))

    def _make_ramp(self) -> BatchRamp:
        options = self.options
        first = options.initial_batch_size or options.global_batch_size
        num_steps = round(options.batch_ramp_ratio * (options.max_steps or 0))
        unit = self.micro * self.accelerator.num_processes
        return BatchRamp(first, options.global_batch_size, num_steps, unit)

    def resume(self, checkpoint: Path) -> str | None:
        """Go on from a checkpoint whose weights the model has; a line to print if exactness is lost."""
        state = load_training_state(checkpoint / STATE_FILE)
        self.optimizer.load_state_dict(state["optimizer"])
        self.position = Position(**state["position"])
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if state["environment"]["num_processes"] == self.accelerator.num_processes:
            own = state["ranks"][self.accelerator.process_index]
            restore_random_state(own["random"])
            self.sums = {name: value.to(self.accelerator.device) for name, value in own["sums"].items()}
            self.interval_seconds = own["interval_seconds"]
        before, now = state["environment"], self._environment()
        changed = [f"{name} {before[name]} -> {now[name]}" for name in now if before[name] != now[name]]
        return (
            f"resumed under other conditions ({', '.join(changed)}): not bit-identical" if changed else None
        )

    def run(self) -> None:
        """Train until the budget is used up; the last state is evaluated and saved."""
        if self.accelerator.is_main_process:
            path = Path(self.options.output_dir) / "metrics.jsonl"
            self.log = MetricsLog(path, resume_step=self.position.step)
        started = time.perf_counter() - self.position.seconds
        with self._progress_bar() as bar:
            while not self._finished(started):
                self._run_epoch(started, bar)

    def _run_epoch(self, started: float, bar: Any) -> None:
        position, options = self.position, self.options
        self.rows.set_epoch(position.epoch)
        self.collate.set_epoch(position.epoch)
        order = epoch_order(len(self.rows), options.seed, position.epoch)
        world = self.accelerator.num_processes
        hands = HandBatches(
            order,
            position.sample,
            position.step,
            self._make_ramp(),
            self.micro,
            world,
            self.accelerator.process_index,
        )
        batches = iter(self._loader(hands))
        for window in hands.windows():
            step_started = time.perf_counter()
            turns = deal(window, self.micro, world)
            hand = [(self._receive(next(batches)), len(turn[hands.rank]) > 0) for turn in turns]
            self._update(hand, self.schedule.factor(position.step, position.seconds))
            position.step += 1
            position.sample += len(window)
            self.interval_seconds += time.perf_counter() - step_started
            is_last = self._finished(started)
            self._finish_step(is_last, bar)
            if is_last:
                return
        position.epoch, position.sample = position.epoch + 1, 0

    def _loader(self, hands: HandBatches) -> DataLoader[Any]:
        return DataLoader(
            self.rows,  # type: ignore[arg-type]
            batch_sampler=hands,
            collate_fn=self.collate,
            num_workers=self.options.dataloader_num_workers,
            generator=torch.Generator(),  # else making an iterator draws from the generator of dropout
            pin_memory=self.accelerator.device.type == "cuda",
        )

    def _receive(self, batch: Any) -> dict[str, Tensor]:
        """The tensors the model takes, on its device."""
        return {
            name: value.to(self.accelerator.device, non_blocking=True)
            for name, value in batch.items()
            if isinstance(value, Tensor) and name != "sample_id"
        }

    def _update(self, hand: list[tuple[dict[str, Tensor], bool]], factor: float) -> None:
        """Forward and backward over this rank's share of a global batch, then one step of the optimizer.

        A batch that only fills an empty hand takes part with a loss of 0.
        """
        self.model.train()
        items = self._count(hand)
        for group in self.optimizer.param_groups:
            group["lr"] = self.optim_options.learning_rate * factor * group["rate_factor"]
        for turn, (batch, is_dealt) in enumerate(hand):
            is_last = turn == len(hand) - 1  # gradients are exchanged once, then
            with nullcontext() if is_last else self.accelerator.no_sync(self.model):
                outputs = self.model(**batch, **items)
                # Gradients are averaged over processes; a rank's loss is its share of the whole already.
                self.accelerator.backward(outputs.loss * (self.accelerator.num_processes if is_dealt else 0))
            if is_dealt:
                self._add(self.task.measure(outputs, batch, items))
                self._add({"tokens": batch["attention_mask"].sum()})
        norm = self.accelerator.clip_grad_norm_(
            self.model.parameters(), self.optim_options.max_grad_norm or math.inf
        )
        if self.accelerator.scaler is None and not bool(torch.isfinite(norm)):
            raise ValueError(
                f"step {self.position.step + 1}: the gradient is not finite; stopped before the update. "
                "Lower --learning_rate or raise --warmup_ratio; the last checkpoint is good"
            )
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _count(self, hand: list[tuple[dict[str, Tensor], bool]]) -> dict[str, Tensor]:
        """Items of the whole global batch, at least 1 of each."""
        counts = [(self.task.count_items(batch), is_dealt) for batch, is_dealt in hand]
        totals = torch.stack([torch.stack(list(count.values())) * is_dealt for count, is_dealt in counts])
        totals = self.accelerator.reduce(totals.sum(0), reduction="sum").clamp(min=1)
        return dict(zip(counts[0][0], totals, strict=True))

    def _add(self, sums: dict[str, Tensor]) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value.detach() if name in self.sums else value.detach()

    def _finished(self, started: float) -> bool:
        """Whether the budget is used up, by the clock of the main process."""
        seconds = [time.perf_counter() - started]
        if self.schedule.max_seconds is not None:
            broadcast_object_list(seconds)
        self.position.seconds = seconds[0]
        return self.schedule.finished(self.position.step, self.position.seconds)

    def _finish_step(self, is_last: bool, bar: Any) -> None:
        """Whatever is due after an update; after the last one everything is."""
        step, options = self.position.step, self.options
        record: dict[str, float] = {}
        if self.sums and (is_last or step % options.logging_steps == 0):
            record |= self._training_metrics()
        if is_last or step % options.eval_steps == 0:
            record |= {f"eval_{name}": value for name, value in self.evaluate(self.model).items()}
        if record and self.accelerator.is_main_process:
            self.log.write({"step": step, "epoch": self.position.epoch, **record})
            self.accelerator.log(record, step=step)
        self._show(bar, record)
        if is_last or step % options.save_steps == 0:
            self.save()

    def _training_metrics(self) -> dict[str, float]:
        names, values = list(self.sums), torch.stack([value.double() for value in self.sums.values()])
        sums = dict(zip(names, self.accelerator.reduce(values, reduction="sum").tolist(), strict=True))
        rate = max(group["lr"] for group in self.optimizer.param_groups)
        speed = sums["tokens"] / self.interval_seconds
        self.sums, self.interval_seconds = {}, 0.0
        return self.task.summarise(sums) | {"learning_rate": rate, "tokens_per_second": round(speed, 1)}

    def save(self) -> None:
        """One checkpoint folder: the model as `from_pretrained` reads it, and the state of training."""
        own = {"random": capture_random_state(), "sums": self.sums, "interval_seconds": self.interval_seconds}
        ranks = gather_object([own])
        if self.accelerator.is_main_process:
            folder = Path(self.options.output_dir) / f"checkpoint-{self.position.step}"
            save_checkpoint(folder, lambda partial: self._write(partial, ranks))
            prune_checkpoints(folder.parent, self.options.save_total_limit)
        self.accelerator.wait_for_everyone()

    def _write(self, folder: Path, ranks: list[dict[str, Any]]) -> None:
        self.save_model(folder)
        scaler = self.accelerator.scaler
        state = {
            "optimizer": self.optimizer.state_dict(),
            "position": asdict(self.position),
            "ranks": ranks,
            "scaler": None if scaler is None else scaler.state_dict(),
            "environment": self._environment(),
        }
        save_training_state(folder / STATE_FILE, state)

    def _environment(self) -> dict[str, Any]:
        """What bit-identity depends on beside the recipe."""
        return {
            "num_processes": self.accelerator.num_processes,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "device": self.accelerator.device.type,
        }

    def _progress_bar(self) -> Any:
        unit = "step" if self.schedule.max_seconds is None else "s"
        return tqdm(
            total=round(self.schedule.total),
            unit=unit,
            disable=not self.accelerator.is_main_process,
            dynamic_ncols=True,
            bar_format="{l_bar}{bar}| {elapsed}<{remaining}{postfix}",
        )

    def _show(self, bar: Any, record: dict[str, float]) -> None:
        done = self.position.step if self.schedule.max_seconds is None else self.position.seconds
        bar.update(min(round(done), bar.total) - bar.n)
        shown = ("loss", "masked_accuracy", "next_sentence_accuracy", "tokens_per_second")
        if "loss" in record:
            values = [f"{name.replace('_', ' ')} {record[name]:,.3g}" for name in shown if name in record]
            bar.set_postfix_str(f"step {self.position.step}, " + ", ".join(values))
