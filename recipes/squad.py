"""Questions on a context -> a model that marks the answer in it: SQuAD 1.1 and 2.0, CMRC 2018 (section 4.2).

accelerate launch recipes/squad.py --config recipes/squad/tiny.yaml
->  runs/answers/model (for `from_pretrained`), results.json of every rate and seed, a table on the screen
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_type_hints

from accelerate.accelerator import Accelerator
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from hfbert import HFBertForQuestionAnswering
from hfbert.data.features import FeatureCollator, FeatureRows
from hfbert.data.pydoc_answers import answer_rows
from hfbert.data.questions import Question, locate_answers, read_questions, rows_to_questions
from hfbert.data.squad import Answer, best_answers, make_features, softmax
from hfbert.data.tables import SourceOptions, Table, hold_out, read_dataset
from hfbert.data.tokenizer import load_tokenizer, save_tokenizer
from hfbert.hub import publish_task_model
from hfbert.training.comparison import show_runs
from hfbert.training.finetuning import FineTuneOptions, Job, best_result, run_job, write_scores
from hfbert.training.layers import LayerOptions
from hfbert.training.loop import TrainOptions, make_accelerator
from hfbert.training.metrics import AnswerMetric
from hfbert.training.null_threshold import best_null_threshold
from hfbert.training.optim import OptimOptions
from hfbert.training.options import parse_options, run
from hfbert.training.prediction import predict_rows
from hfbert.training.run_folder import open_run
from hfbert.training.start import find_max_length

HEAD = HFBertForQuestionAnswering
HUB_NAME = "rajpurkar/squad"
NO_CANDIDATE = 1e6  # what stands for the difference of scores where there is no stretch to answer with
Ranked = list[tuple[list[Answer], float]]  # the n-best of each question, and the score of no answer


@dataclass(kw_only=True)
class AnswerOptions:
    """How contexts are cut, and answers chosen and counted."""

    doc_stride: int = 128  # tokens from the start of a window to the start of the next
    n_best_size: int = 20  # answers written for each question
    max_answer_length: int = 30  # most tokens of an answer
    version_2_with_negative: bool = False  # some questions have no answer: look for the threshold to say so
    language: Literal["en", "zh"] = "en"  # count words, or Chinese characters as CMRC 2018 does

    def __post_init__(self) -> None:
        for name in ("doc_stride", "n_best_size", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")


@dataclass(frozen=True)
class Recipe:
    """All options of the run, each under the room it belongs to."""

    source: SourceOptions
    answer: AnswerOptions
    tune: FineTuneOptions
    layers: LayerOptions
    optim: OptimOptions
    train: TrainOptions


def main(argv: Sequence[str] | None = None) -> None:
    kinds = get_type_hints(Recipe).values()
    options = parse_options(*kinds, argv=argv, description="Questions on a context -> answers marked in it.")
    recipe = Recipe(*options)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    accelerator = make_accelerator(recipe.train)
    parts = read_parts(recipe)
    if "train" in parts:
        parts["train"], num_moved = locate_answers(parts["train"])
        accelerator.print(f"questions: {len(parts['train']):,}, answers moved to their text: {num_moved}")
    tokenizer = load_tokenizer(recipe.tune.tokenizer or recipe.tune.model_name_or_path)
    rows = {
        part: make_rows(recipe, questions, tokenizer, has_labels=part == "train")
        for part, questions in parts.items()
    }
    output_dir = Path(recipe.train.output_dir)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            open_run(output_dir, options, recipe.tune.overwrite_output_dir)

    collate = FeatureCollator(tokenizer.pad_token_id)
    rank = partial(predict, accelerator, recipe, collate)
    held_out = parts["validation"]
    job = Job(
        head=HEAD,
        save_tokenizer=partial(save_tokenizer, tokenizer),
        train_rows=FeatureRows(rows.get("train", [])),
        collate=collate,
        judge=lambda model: judge(recipe, rank(model, rows["validation"], held_out), parts),
        facts={
            "recipe": "squad",
            "task": recipe.source.task("answers", "squad"),
            "model": recipe.tune.start,
            "train_rows": len(parts.get("train", [])),
            "eval_rows": len(held_out),
        },
    )
    model = run_job(accelerator, job, output_dir, recipe.tune, recipe.train, recipe.optim, recipe.layers)
    for part in ("validation", "test"):
        if part in parts:
            ranked = rank(model, rows[part], parts[part])
            if accelerator.is_main_process:
                write_answers(recipe, output_dir, part, ranked, parts[part])
    if accelerator.is_main_process:
        show_runs([output_dir])
        publish(recipe, output_dir)
    accelerator.end_training()


def read_parts(recipe: Recipe) -> dict[str, list[Question]]:
    """The questions of all parts, from files, a data set, the Hub, or the installed documentation."""
    source, do_train = recipe.source, recipe.tune.do_train
    files = {"train": source.train_file, "validation": source.validation_file, "test": source.test_file}
    parts = {part: read_questions(file) for part, file in files.items() if file is not None}
    tables: dict[str, Table] = {}
    if source.dataset_name == "pydoc":
        tables = {part: Table(f"pydoc ({part})", rows) for part, rows in answer_rows().items()}
    elif source.dataset_name is not None or not parts:
        tables = read_dataset(source.dataset_name or HUB_NAME, source.dataset_config_name)
    parts = {part: rows_to_questions(table) for part, table in tables.items()} | parts
    if do_train and "train" not in parts:
        raise ValueError(f"there is no training set among {', '.join(parts)}: give --train_file")
    if "validation" not in parts:
        if "train" not in parts:
            raise ValueError(f"there is no validation set among {', '.join(parts)}: give --validation_file")
        halves = hold_out(len(parts["train"]), source.validation_split_percentage)
        kept, held_out = ([parts["train"][number] for number in numbers] for numbers in halves)
        parts |= {"train": kept, "validation": held_out}
    for part in ("train", "validation"):
        for question in parts.get(part, []):
            if question.answers is None:
                raise ValueError(f"{question.place}: no answers, and {part} needs them ([] for no answer)")
    return {part: questions[: source.limit(part)] for part, questions in parts.items()}


def make_rows(
    recipe: Recipe, questions: list[Question], tokenizer: PreTrainedTokenizerBase, has_labels: bool
) -> list[dict[str, Any]]:
    length = find_max_length(HEAD, recipe.tune.model_name_or_path, recipe.source.max_length)
    return make_features(questions, tokenizer, length, recipe.answer.doc_stride, has_labels)


def predict(
    accelerator: Accelerator,
    recipe: Recipe,
    collate: FeatureCollator,
    model: nn.Module,
    rows: list[dict[str, Any]],
    questions: list[Question],
) -> Ranked:
    """The best answers to every question over all its windows, and the score of no answer."""
    size = recipe.train.per_device_eval_batch_size
    found = predict_rows(accelerator, model, rows, collate, size, outputs=("start_logits", "end_logits"))
    windows: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        windows.setdefault(row["question"], []).append(number)
    options = recipe.answer
    return [
        best_answers(
            [rows[window] for window in windows[number]],
            [found[window][0] for window in windows[number]],
            [found[window][1] for window in windows[number]],
            question.context,
            options.n_best_size,
            options.max_answer_length,
        )
        for number, question in enumerate(questions)
    ]


def judge(recipe: Recipe, ranked: Ranked, parts: dict[str, list[Question]]) -> dict[str, Any]:
    """Exact match and F1, beside those of the commonest answer of training for every question."""
    questions = parts["validation"]
    texts = [answers[0].text if answers else "" for answers, _ in ranked]
    given = Counter(one.answers[0] if one.answers else "" for one in parts.get("train", questions))
    commonest = given.most_common(1)[0][0]
    found: dict[str, Any] = {"metrics": score(recipe, texts, questions), "main_metric": "f1"}
    if recipe.answer.version_2_with_negative:
        threshold, texts = choose_threshold(recipe, ranked, questions)
        found["metrics"] = score(recipe, texts, questions)
        found["null_threshold"] = threshold
    return found | {"baseline": score(recipe, [commonest] * len(questions), questions)}


def score(recipe: Recipe, texts: list[str], questions: list[Question]) -> dict[str, float]:
    return AnswerMetric(recipe.answer.language).compute(
        predictions=[
            {"id": one.place, "prediction_text": text} for one, text in zip(questions, texts, strict=True)
        ],
        references=[{"id": one.place, "answers": list(one.answers or ())} for one in questions],
    )


def choose_threshold(recipe: Recipe, ranked: Ranked, questions: list[Question]) -> tuple[float, list[str]]:
    """The threshold of no answer that gives the best F1, and the answers with it."""
    texts = [answers[0].text if answers else "" for answers, _ in ranked]
    differences = [null - answers[0].score if answers else NO_CANDIDATE for answers, null in ranked]
    if_answered = [score(recipe, [text], [one])["f1"] for text, one in zip(texts, questions, strict=True)]
    if_null = [0.0 if one.answers else 100.0 for one in questions]
    threshold, _ = best_null_threshold(differences, if_answered, if_null)
    return threshold, [
        "" if difference > threshold else text for text, difference in zip(texts, differences, strict=True)
    ]


def write_answers(recipe: Recipe, folder: Path, part: str, ranked: Ranked, questions: list[Question]) -> None:
    """One JSON object for each question: its best answers with their places, and the score of no answer."""
    with (folder / f"predictions_{part}.jsonl").open("w", encoding="utf-8") as file:
        for question, (answers, null_score) in zip(questions, ranked, strict=True):
            shares = softmax([answer.score for answer in answers])
            best = [
                {"text": one.text, "start": one.start, "end": one.end, "probability": share}
                for one, share in zip(answers, shares, strict=True)
            ]
            row = {"id": question.id, "n_best": best, "null_score": null_score}
            file.write(json.dumps(row, ensure_ascii=True) + "\n")
    if part == "test" and all(one.answers is not None for one in questions):
        texts = [answers[0].text if answers else "" for answers, _ in ranked]
        write_scores(folder / "results_test.json", score(recipe, texts, questions))


def publish(recipe: Recipe, folder: Path) -> None:
    """The card of the best model, and its upload if that was asked for."""
    tune, kind = recipe.tune, "AutoModelForQuestionAnswering"
    if tune.do_train:
        name, result = tune.hub_model_id or folder.resolve().name, best_result(folder)
        publish_task_model(folder / "model", name, kind, result, tune.push_to_hub, tune.hub_private_repo)


if __name__ == "__main__":
    run(main)
