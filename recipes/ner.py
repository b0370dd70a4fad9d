"""Words with tags -> a token classifier: CoNLL-2003, WNUT-17, Chinese character files (paper: section 5.3).

accelerate launch recipes/ner.py --config recipes/ner/tiny.yaml
->  runs/terms/model (for `from_pretrained`), results.json of every rate and seed, a table on the screen
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from accelerate.accelerator import Accelerator
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from hfbert import HFBertForTokenClassification
from hfbert.data.classification import order_labels
from hfbert.data.columns import Sentence, read_sentences, rows_to_sentences, write_columns
from hfbert.data.features import FeatureCollator, FeatureRows
from hfbert.data.ner import collect_tags, convert_tags, learn_names, make_features
from hfbert.data.pydoc_labels import entity_rows
from hfbert.data.tables import SourceOptions, Table, hold_out, read_dataset
from hfbert.data.tokenizer import load_tokenizer, save_tokenizer
from hfbert.hub import publish_task_model
from hfbert.training.comparison import show_runs
from hfbert.training.finetuning import FineTuneOptions, Job, best_result, run_job, write_scores
from hfbert.training.layers import LayerOptions
from hfbert.training.loop import TrainOptions, make_accelerator
from hfbert.training.metrics import EntityMetric
from hfbert.training.optim import OptimOptions
from hfbert.training.options import parse_options, run
from hfbert.training.prediction import predict_rows
from hfbert.training.run_folder import open_run
from hfbert.training.start import find_max_length, known_labels

HEAD = HFBertForTokenClassification
_OVERALL = "overall_"


@dataclass(kw_only=True)
class TagOptions:
    """How words and tags are read, and become tokens and labels."""

    word_column: int | None = None  # column of the words, from 0, or from the end with -1; none: found
    tag_column: int | None = None  # column of the tags; none: the last one that holds tags
    stride: int = 32  # tokens that neighbouring windows of a long sentence share
    label_all_pieces: bool = False  # later pieces of a word carry its I- label, not none


@dataclass(frozen=True)
class Recipe:
    """All options of the run, each under the room it belongs to."""

    source: SourceOptions
    tags: TagOptions
    tune: FineTuneOptions
    layers: LayerOptions
    optim: OptimOptions
    train: TrainOptions


def main(argv: Sequence[str] | None = None) -> None:
    kinds = get_type_hints(Recipe).values()
    options = parse_options(*kinds, argv=argv, description="Words with tags -> a token classifier.")
    recipe = Recipe(*options)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    accelerator = make_accelerator(recipe.train)
    parts, scheme = read_parts(recipe)
    accelerator.print(f"tags: {scheme}" + ("" if scheme == "IOB2" else ", turned into IOB2"))
    names = choose_names(recipe, parts)
    tokenizer = load_tokenizer(recipe.tune.tokenizer or recipe.tune.model_name_or_path)
    rows = {part: make_rows(recipe, sentences, names, tokenizer) for part, sentences in parts.items()}
    output_dir = Path(recipe.train.output_dir)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            open_run(output_dir, options, recipe.tune.overwrite_output_dir)

    collate = FeatureCollator(tokenizer.pad_token_id)
    guess = partial(predict, accelerator, recipe, names, collate)
    held_out = parts["validation"]
    job = Job(
        head=HEAD,
        names=names,
        save_tokenizer=partial(save_tokenizer, tokenizer),
        train_rows=FeatureRows(rows.get("train", [])),
        collate=collate,
        judge=lambda model: judge(guess(model, rows["validation"], held_out), held_out),
        facts={
            "recipe": "ner",
            "task": recipe.source.task("terms", "tags"),
            "model": recipe.tune.start,
            "train_rows": len(parts.get("train", [])),
            "eval_rows": len(held_out),
        },
    )
    model = run_job(accelerator, job, output_dir, recipe.tune, recipe.train, recipe.optim, recipe.layers)
    if "test" in parts:
        tags = guess(model, rows["test"], parts["test"])
        if accelerator.is_main_process:
            write_test(output_dir, parts["test"], tags)
    if accelerator.is_main_process:
        show_runs([output_dir])
        publish(recipe, output_dir)
    accelerator.end_training()


def read_parts(recipe: Recipe) -> tuple[dict[str, list[Sentence]], str]:
    """The sentences of all parts, their tags in IOB2, and the scheme they had in the file."""
    source, do_train = recipe.source, recipe.tune.do_train
    files = {"train": source.train_file, "validation": source.validation_file, "test": source.test_file}
    columns = recipe.tags.word_column, recipe.tags.tag_column
    parts = {part: read_sentences(file, *columns) for part, file in files.items() if file is not None}
    tables: dict[str, Table] = {}
    if source.dataset_name == "pydoc":
        tables = {part: Table(f"pydoc ({part})", rows) for part, rows in entity_rows().items()}
    elif source.dataset_name is not None:
        tables = read_dataset(source.dataset_name, source.dataset_config_name)
    parts = {part: rows_to_sentences(table) for part, table in tables.items()} | parts
    if do_train and "train" not in parts:
        raise ValueError("there is no training set: give --dataset_name or --train_file")
    if "validation" not in parts:
        if "train" not in parts:
            raise ValueError("there is no validation set: give --dataset_name or --validation_file")
        halves = hold_out(len(parts["train"]), source.validation_split_percentage)
        kept, held_out = ([parts["train"][number] for number in numbers] for numbers in halves)
        parts |= {"train": kept, "validation": held_out}
    # One scheme for all: a small part may have no entity that gives it away.
    everything, scheme = convert_tags([one for sentences in parts.values() for one in sentences])
    converted = iter(everything)
    limited = {}
    for part, sentences in parts.items():
        limited[part] = [next(converted) for _ in sentences][: source.limit(part)]
    return limited, scheme


def choose_names(recipe: Recipe, parts: dict[str, list[Sentence]]) -> tuple[str, ...]:
    """The labels of the training set, in a checkpoint's order if it knows the same ones."""
    known = known_labels(HEAD, recipe.tune.model_name_or_path)
    if not recipe.tune.do_train and known is not None:
        return tuple(known.values())
    return order_labels(learn_names(parts.get("train", parts["validation"])), known)


def make_rows(
    recipe: Recipe, sentences: list[Sentence], names: tuple[str, ...], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, Any]]:
    tags = recipe.tags
    length = find_max_length(HEAD, recipe.tune.model_name_or_path, recipe.source.max_length)
    return make_features(sentences, names, tokenizer, length, tags.stride, tags.label_all_pieces)


def predict(
    accelerator: Accelerator,
    recipe: Recipe,
    names: tuple[str, ...],
    collate: FeatureCollator,
    model: nn.Module,
    rows: list[dict[str, Any]],
    sentences: list[Sentence],
) -> list[list[str]]:
    """A tag for every word of every sentence."""
    size = recipe.train.per_device_eval_batch_size
    found = predict_rows(accelerator, model, rows, collate, size)
    labels = [logits.argmax(-1) for (logits,) in found]
    return collect_tags(rows, labels, sentences, names)


def judge(tags: list[list[str]], sentences: list[Sentence]) -> dict[str, Any]:
    """Entity scores, overall and by type, beside those of the commonest entity tag for every word."""
    found = EntityMetric().compute(predictions=tags, references=[list(one.tags) for one in sentences])
    overall = {name.removeprefix(_OVERALL): found[name] for name in found if name.startswith(_OVERALL)}
    return {
        "metrics": overall,
        "main_metric": "f1",
        "baseline": {"f1": constant_f1(sentences), "accuracy": constant_accuracy(sentences)},
        "types": {name: scores for name, scores in found.items() if not name.startswith(_OVERALL)},
    }


def constant_f1(sentences: list[Sentence]) -> float:
    """F1 of calling every word an entity of the commonest type; calling none one scores 0."""
    tags = Counter(tag for one in sentences for tag in one.tags if tag.startswith("B-"))
    if not tags:
        return 0.0
    commonest = tags.most_common(1)[0][0]
    constant = [[commonest] * len(one.words) for one in sentences]
    scores = EntityMetric().compute(predictions=constant, references=[list(one.tags) for one in sentences])
    return float(scores["overall_f1"])


def constant_accuracy(sentences: list[Sentence]) -> float:
    """Share of the commonest tag, which is nearly always O."""
    tags = Counter(tag for one in sentences for tag in one.tags)
    return float(np.divide(tags.most_common(1)[0][1], tags.total())) if tags else 0.0


def write_test(folder: Path, sentences: list[Sentence], tags: list[list[str]]) -> None:
    """The test file with the predicted tags as its last column; its scores beside, if it is labelled."""
    write_columns(folder / "predictions_test.conll", sentences, tags)
    if all(len(one.tags) == len(one.words) for one in sentences):
        scores = judge(tags, sentences)
        write_scores(folder / "results_test.json", scores["metrics"] | {"types": scores["types"]})


def publish(recipe: Recipe, folder: Path) -> None:
    """The card of the best model, and its upload if that was asked for."""
    tune, kind = recipe.tune, "AutoModelForTokenClassification"
    if tune.do_train:
        name, result = tune.hub_model_id or folder.resolve().name, best_result(folder)
        publish_task_model(folder / "model", name, kind, result, tune.push_to_hub, tune.hub_private_repo)


if __name__ == "__main__":
    run(main)
