"""Raw text -> a BERT that fills masks: corpus, tokenizer, pairs, masks, training, model folder, report.

accelerate launch recipes/pretrain.py --config recipes/pretrain/tiny.yaml
->  runs/tiny/model (for `from_pretrained`), metrics.jsonl, curves.png, a table and ten guesses on the screen
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from accelerate.accelerator import Accelerator
from huggingface_hub.errors import StrictDataclassError
from pretrain_report import guess_held_out, list_facts, list_results
from rich.console import Console
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from hfbert import DataCollatorForPreTraining, HFBertConfig, HFBertForPreTraining
from hfbert.data.corpus import CorpusOptions, read_documents
from hfbert.data.masking import MaskingOptions
from hfbert.data.pair_plan import PairOptions
from hfbert.data.pairs import SentencePairs, pair_statistics
from hfbert.data.segmentation import ChineseWords, GivenWords, WordOptions
from hfbert.data.sentences import split_sentences
from hfbert.data.shards import TOKENIZER, is_sharded, load_shards
from hfbert.data.tokenized import TokenizedCorpus, tokenize_corpus
from hfbert.data.tokenizer import TokenizerOptions, load_tokenizer, save_tokenizer, train_tokenizer
from hfbert.hub import push_model, write_model_card
from hfbert.interop import change_vocabulary, extend_positions
from hfbert.training.checkpoint import latest_checkpoint
from hfbert.training.loop import TrainingLoop, TrainOptions, make_accelerator
from hfbert.training.optim import OptimOptions
from hfbert.training.options import parse_options, run, save_resolved
from hfbert.training.pretraining import PretrainingTask, constant_baselines, evaluate
from hfbert.training.report import guesses_table, plot_curves, read_metrics, results_table
from hfbert.training.run_folder import RECIPE, check_run, make_folder
from hfbert.training.start import load_config

GENERAL_DOCUMENTS = 500  # of the general corpus are measured on


@dataclass(kw_only=True)
class ModelOptions:
    """The encoder's shape; everything else is as in HFBertConfig."""

    hidden_size: int = HFBertConfig.hidden_size  # width of a position
    num_hidden_layers: int = HFBertConfig.num_hidden_layers  # layers
    num_attention_heads: int = HFBertConfig.num_attention_heads  # heads a layer
    intermediate_size: int = HFBertConfig.intermediate_size  # width of the feed-forward part
    hidden_dropout_prob: float = HFBertConfig.hidden_dropout_prob  # dropout of states
    attention_probs_dropout_prob: float = HFBertConfig.attention_probs_dropout_prob  # dropout of attention
    initializer_range: float = HFBertConfig.initializer_range  # standard deviation of initial weights
    max_position_embeddings: int | None = None  # rows of the position table; none: max_length
    model_name_or_path: str | None = None  # go on from this BERT, whose shape it then is

    def __post_init__(self) -> None:
        if self.model_name_or_path is not None:
            own = self.shape() | {"max_position_embeddings": self.max_position_embeddings}
            differing = [name for name, value in own.items() if value != getattr(ModelOptions, name)]
            if differing:
                raise ValueError(f"{differing[0]} comes from --model_name_or_path: drop one of them")
        try:
            HFBertConfig(**self.shape())
        except StrictDataclassError as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(reason.removeprefix("ValueError: ")) from error

    def shape(self) -> dict[str, Any]:
        """What a new model's configuration is made of."""
        others = ("max_position_embeddings", "model_name_or_path")
        return {name: value for name, value in asdict(self).items() if name not in others}


@dataclass(kw_only=True)
class RecipeOptions:
    """What is this recipe's own."""

    validation_split_percentage: float = 2.0  # share of documents held out for evaluation, in percent
    general_corpus: str | None = None  # another text to measure on, such as a general one beside a domain's
    overwrite_output_dir: bool = False  # throw away the run in output_dir
    push_to_hub: bool = False  # upload output_dir/model when the run ends
    hub_model_id: str | None = None  # repository to upload to; none: the name of output_dir
    hub_private_repo: bool = False  # make a new repository private

    def __post_init__(self) -> None:
        if not 0 < self.validation_split_percentage < 100:
            share = self.validation_split_percentage
            raise ValueError(f"validation_split_percentage={share} must be above 0 and below 100")


@dataclass(frozen=True)
class Recipe:
    """All options of the run, each under the room it belongs to."""

    corpus: CorpusOptions
    tokenizer: TokenizerOptions
    pairs: PairOptions
    masking: MaskingOptions
    words: WordOptions
    model: ModelOptions
    optim: OptimOptions
    train: TrainOptions
    own: RecipeOptions

    @property
    def output_dir(self) -> Path:
        return Path(self.train.output_dir)

    @property
    def shards(self) -> Path:
        """The corpus as a folder, which may hold shards."""
        return Path(self.corpus.corpus).expanduser()


def main(argv: Sequence[str] | None = None) -> None:
    started = time.perf_counter()
    kinds = get_type_hints(Recipe).values()
    options = parse_options(*kinds, argv=argv, description="Raw text -> a BERT that fills masks.")
    recipe = Recipe(*options)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()  # one bar, the training's, is enough
    accelerator = make_accelerator(recipe.train)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            open_run(recipe, options)
    tokenizer, corpus = load_text(recipe)
    train_rows, held_out_rows = make_rows(recipe, tokenizer, corpus)
    accelerator.print(f"training: {pair_statistics(train_rows)}\nheld out: {pair_statistics(held_out_rows)}")

    measured = {"": collate_held_out(recipe, tokenizer, held_out_rows)}
    if recipe.own.general_corpus is not None:
        general = read_general(recipe, tokenizer, recipe.own.general_corpus)
        measured["general_"] = collate_held_out(recipe, tokenizer, general)
    loop = make_loop(accelerator, recipe, tokenizer, train_rows, measured)
    loop.run()
    if accelerator.is_main_process:
        finish(recipe, accelerator.unwrap_model(loop.model), tokenizer, corpus, time.perf_counter() - started)
    accelerator.end_training()


def open_run(recipe: Recipe, options: Sequence[object]) -> None:
    """Make the run's folder with its recipe and its text, or go on with the one that is there."""
    folder = recipe.output_dir
    continues = check_run(folder, options, recipe.own.overwrite_output_dir)
    if continues and ((folder / "text").exists() or is_sharded(recipe.shards)):
        return
    tokenizer, corpus = load_text(recipe) if is_sharded(recipe.shards) else prepare_text(recipe)
    make_rows(recipe, tokenizer, corpus)  # refuses a text that gives no pairs, before anything is written
    if folder.exists() and not continues:
        shutil.rmtree(folder)
    make_folder(folder)
    save_resolved(options, folder / RECIPE)
    if is_sharded(recipe.shards):
        return
    partial = folder / ".text.partial"
    save_tokenizer(tokenizer, partial / "tokenizer")
    corpus.save(partial / "corpus")
    partial.rename(folder / "text")


def load_text(recipe: Recipe) -> tuple[PreTrainedTokenizerBase, TokenizedCorpus]:
    """The tokenizer and the ids that this run made, or those of a folder of shards."""
    if is_sharded(recipe.shards):
        tokenizer = load_tokenizer(recipe.tokenizer.tokenizer or str(recipe.shards / TOKENIZER))
        corpus = load_shards(recipe.shards, tokenizer)
        if recipe.masking.whole_word_mask and corpus.word_starts is None:
            raise ValueError(f"--corpus {recipe.shards} knows no words: build it with --whole_word_mask")
        tokenizer.model_max_length = recipe.pairs.max_length
        return tokenizer, corpus
    tokenizer = load_tokenizer(str(recipe.output_dir / "text" / "tokenizer"))
    return tokenizer, TokenizedCorpus.load(recipe.output_dir / "text" / "corpus")


def prepare_text(recipe: Recipe) -> tuple[PreTrainedTokenizerBase, TokenizedCorpus]:
    """Read the corpus, train or load the tokenizer, and turn every sentence into ids."""
    print(f"reading {recipe.corpus.corpus}")
    documents = list(read_documents(recipe.corpus))
    given = recipe.tokenizer.tokenizer or recipe.model.model_name_or_path
    if given is not None:
        tokenizer = load_tokenizer(given)
    else:
        print(f"training a tokenizer of {recipe.tokenizer.vocab_size:,} pieces")
        sentences = (sentence for document in documents for sentence in split_sentences(document))
        tokenizer = train_tokenizer(sentences, recipe.tokenizer, model_max_length=recipe.pairs.max_length)
    tokenizer.model_max_length = recipe.pairs.max_length
    corpus, report = tokenize_corpus(documents, tokenizer, find_words(recipe, documents))
    print(report)
    return tokenizer, corpus


def find_words(recipe: Recipe, documents: Sequence[str]) -> ChineseWords | GivenWords | None:
    """What tells the words of the corpus where they are masked whole."""
    file = recipe.words.segmentation_file
    if not recipe.masking.whole_word_mask:
        if file is not None:
            raise ValueError("--segmentation_file is of no use without --whole_word_mask true")
        return None
    if file is None:
        return ChineseWords()
    return GivenWords(documents, list(read_documents(replace(recipe.corpus, corpus=file))))


def split_documents(recipe: Recipe, corpus: TokenizedCorpus) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the documents that are trained on and of those held out."""
    order = np.random.default_rng(recipe.train.seed).permutation(len(corpus))
    num_held_out = max(2, round(len(corpus) * recipe.own.validation_split_percentage / 100))
    if len(corpus) - num_held_out < 2:
        raise ValueError(
            f"--corpus {recipe.corpus.corpus} has {len(corpus)} documents: 4 are needed, 2 of them held out. "
            "A blank line ends a document"
        )
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


def make_rows(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, corpus: TokenizedCorpus
) -> tuple[SentencePairs, SentencePairs]:
    """Pairs of the documents trained on, and of those held out."""
    ids = (tokenizer.cls_token_id, tokenizer.sep_token_id, recipe.train.seed)
    trained, held_out = split_documents(recipe, corpus)
    return (
        SentencePairs(corpus, recipe.pairs, *ids, documents=trained),
        SentencePairs(corpus, recipe.pairs, *ids, documents=held_out),
    )


def read_general(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, corpus_name: str) -> SentencePairs:
    """Pairs of the first documents of a general corpus, cut and masked like those of the run."""
    options = replace(recipe.corpus, corpus=corpus_name, max_documents=GENERAL_DOCUMENTS)
    words = ChineseWords() if recipe.masking.whole_word_mask else None
    corpus, _ = tokenize_corpus(read_documents(options), tokenizer, words)
    seed = recipe.train.seed
    return SentencePairs(corpus, recipe.pairs, tokenizer.cls_token_id, tokenizer.sep_token_id, seed)


def make_collator(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> DataCollatorForPreTraining:
    return DataCollatorForPreTraining(tokenizer, **asdict(recipe.masking), seed=recipe.train.seed)


def collate_held_out(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, rows: SentencePairs
) -> list[dict[str, Tensor]]:
    """The held-out batches, masked once and for all so that evaluations can be compared."""
    collate, size = make_collator(recipe, tokenizer), recipe.train.per_device_eval_batch_size
    # Neighbours in length share a batch: less padding.
    order = sorted(range(len(rows)), key=rows.length)
    starts = range(0, len(rows), size)
    batches = [collate([rows[sample] for sample in order[start : start + size]]) for start in starts]
    return [{name: value for name, value in batch.items() if name != "sample_id"} for batch in batches]


def make_loop(
    accelerator: Accelerator,
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    rows: SentencePairs,
    measured: dict[str, list[dict[str, Tensor]]],
) -> TrainingLoop:
    """The model, new or from the newest complete checkpoint, and the loop that trains it.

    `measured` are the held-out batches, and others under the name that their metrics get in front.
    """

    measure = partial(measure_all, accelerator, measured)
    checkpoint, passed_over = latest_checkpoint(recipe.output_dir)
    for line in passed_over:
        accelerator.print(f"warning: {line}")
    torch.manual_seed(recipe.train.seed)
    if checkpoint is not None:
        model = HFBertForPreTraining.from_pretrained(checkpoint, dtype=torch.float32)
    elif recipe.model.model_name_or_path is not None:
        model = load_start(accelerator, recipe, tokenizer)
        before = measure(model.to(accelerator.device))
        told = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in before.items())
        accelerator.print(f"before training, held out: {told}")
    else:
        model = HFBertForPreTraining(make_config(recipe, tokenizer))
    if recipe.train.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    accelerator.print(f"model: {model.num_parameters():,} parameters on {accelerator.device}")

    def save_model(folder: Path) -> None:
        accelerator.unwrap_model(loop.model).save_pretrained(folder)
        save_tokenizer(tokenizer, folder)

    baselines = constant_baselines(measured[""])
    loop = TrainingLoop(
        accelerator,
        model,
        rows,
        make_collator(recipe, tokenizer),
        PretrainingTask(),
        recipe.train,
        recipe.optim,
        save_model,
        evaluate=lambda model: measure(model) | baselines,
    )
    accelerator.init_trackers("tensorboard")
    if checkpoint is not None:
        warning = loop.resume(checkpoint)
        accelerator.print(
            f"continuing from {checkpoint}", *[f"warning: {warning}"] if warning else [], sep="\n"
        )
    return loop


def measure_all(
    accelerator: Accelerator, measured: dict[str, list[dict[str, Tensor]]], model: nn.Module
) -> dict[str, float]:
    """Losses and accuracies on all batches that are measured on."""
    return {
        f"{start}{name}": value
        for start, batches in measured.items()
        for name, value in evaluate(accelerator, model, batches).items()
    }


def load_start(
    accelerator: Accelerator, recipe: Recipe, tokenizer: PreTrainedTokenizerBase
) -> HFBertForPreTraining:
    """The BERT to go on from, with the positions and the vocabulary of this run."""
    name = recipe.model.model_name_or_path
    assert name is not None
    config = load_config(HFBertForPreTraining, name, sparse_prediction=True)
    model, report = HFBertForPreTraining.from_pretrained(
        name, config=config, dtype=torch.float32, output_loading_info=True
    )
    if report["missing_keys"]:
        absent = ", ".join(sorted(report["missing_keys"])[:3])
        accelerator.print(f"warning: {name} has no {absent} ...: these start from random weights")
    extend_positions(model, recipe.pairs.max_length)
    old = load_tokenizer(name)
    if old.get_vocab() != tokenizer.get_vocab():
        num_new = change_vocabulary(model, old, tokenizer)
        accelerator.print(f"vocabulary: {len(tokenizer):,} pieces, {num_new:,} of them new to the model")
    return model


def make_config(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> HFBertConfig:
    return HFBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=max(recipe.model.max_position_embeddings or 0, recipe.pairs.max_length),
        pad_token_id=tokenizer.pad_token_id,
        sparse_prediction=True,
        **recipe.model.shape(),
    )


def finish(
    recipe: Recipe,
    model: HFBertForPreTraining,
    tokenizer: PreTrainedTokenizerBase,
    corpus: TokenizedCorpus,
    seconds: float,
) -> None:
    """Write the model folder, its card and the curves, and show what came out."""
    metrics = read_metrics(recipe.output_dir / "metrics.jsonl")
    results = list_results(metrics[-1])
    facts = list_facts(recipe, model, tokenizer, corpus, metrics, seconds)
    model.config.sparse_prediction = False  # whoever loads it gets logits of stock shapes
    partial = recipe.output_dir / ".model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    save_tokenizer(tokenizer, partial)
    name = recipe.own.hub_model_id or recipe.output_dir.resolve().name
    held_out = split_documents(recipe, corpus)[1]
    guesses = guess_held_out(model, tokenizer, corpus, held_out, recipe.pairs.max_length)
    write_model_card(partial, name, facts, results, example=guesses[0]["text"] if guesses else "[MASK]")
    shutil.rmtree(recipe.output_dir / "model", ignore_errors=True)
    partial.rename(recipe.output_dir / "model")
    plot_curves(metrics, recipe.output_dir / "curves.png", title=name)

    console = Console()
    console.print(results_table(results, facts, title=f"Held-out results of {name}"))
    console.print(
        guesses_table(guesses, title="Held-out sentences, their masked words and the model's guesses")
    )
    console.print(f"model: {recipe.output_dir / 'model'}   curves: {recipe.output_dir / 'curves.png'}")
    if recipe.own.push_to_hub:
        console.print(push_model(recipe.output_dir / "model", name, recipe.own.hub_private_repo))


if __name__ == "__main__":
    run(main)
