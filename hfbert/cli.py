"""Turn `hfbert WORD ...` into a call of the package; thin, and quick to answer `--help`.

hfbert tokenizer check runs/tiny/model notes.txt  ->  the share of [UNK], overall and by script
hfbert data build wiki/ shards/ --tokenizer runs/tiny/model  ->  shards/part-0-of-1/shard-00000 ...
hfbert report runs/a runs/b                       ->  a table of both, as Markdown and as a picture
hfbert predict tag runs/ner/model notes.txt       ->  the entities of each line, as JSON lines
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `hfbert` command: exit code 0, or 2 after one line on stderr for bad input."""
    parser = argparse.ArgumentParser(prog="hfbert", description="Raw text in, a BERT on the Hub out.")
    words = parser.add_subparsers(dest="word", required=True, metavar="WORD")
    add_tokenizer(words)
    add_data(words)
    add_report(words)
    add_predict(words)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(f"hfbert: error: {' '.join(str(error).split())[:280]}", file=sys.stderr)
        raise SystemExit(2) from None


# What a command needs is imported where it runs: transformers takes seconds, and `--help` should not.


def add_tokenizer(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    tokenizer = words.add_parser("tokenizer", help="look at a tokenizer")
    actions = tokenizer.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="how well it fits a text: share of [UNK], pieces a word")
    check.add_argument("tokenizer", help="name or folder of a tokenizer")
    check.add_argument("files", nargs="+", help="UTF-8 text files")
    check.set_defaults(run=check_tokenizer)


def check_tokenizer(arguments: argparse.Namespace) -> None:
    from hfbert.data import tokenizer as room
    from hfbert.data.corpus import CorpusOptions, read_documents

    tokenizer = room.load_tokenizer(arguments.tokenizer)
    documents = (text for file in arguments.files for text in read_documents(CorpusOptions(corpus=file)))
    for name, value in room.check_tokenizer(tokenizer, documents).items():
        print(f"{name}: {value}")


def add_data(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    data = words.add_parser("data", help="a corpus as token ids on the disk")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser(
        "build", help="turn a corpus of any size into shards; the same command goes on"
    )
    build.add_argument("corpus", help="file, folder, glob, data set, or pydoc")
    build.add_argument("out", type=Path, help="folder of the shards, for `--corpus` of the recipe")
    build.add_argument("--tokenizer", required=True, help="name or folder of a tokenizer")
    build.add_argument("--text_column", default="text", help="column of a data set that holds the text")
    build.add_argument("--dataset_config_name", help="which configuration of a data set")
    build.add_argument("--document_separator", default="blank_line", choices=("blank_line", "line", "file"))
    build.add_argument("--whole_word_mask", action="store_true", help="keep where words start, Chinese too")
    build.add_argument("--shard_megabytes", type=int, default=64, help="million characters of a shard")
    build.add_argument("--shard", type=int, help="which of the --of processes this is, from 0")
    build.add_argument("--of", type=int, help="how many processes build; none: as many as were launched")
    build.set_defaults(run=build_data)
    verify = actions.add_parser("verify", help="hold every byte of the shards against what was written")
    verify.add_argument("out", type=Path, help="folder of the shards")
    verify.set_defaults(run=verify_data)
    add_audit(actions)


def add_audit(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    audit = actions.add_parser("audit", help="one page on a corpus: sizes, pairs, masks, samples")
    audit.add_argument("corpus", help="shards of `hfbert data build`, or file, folder, glob, data set, pydoc")
    audit.add_argument("--tokenizer", help="name or folder of a tokenizer; none: that of the shards")
    audit.add_argument(
        "--max_documents", type=int, default=20_000, help="read so many, where it is no shards"
    )
    audit.add_argument("--max_length", type=int, default=128, help="positions of a sample")
    audit.add_argument("--whole_word_mask", action="store_true", help="mask words whole")
    audit.add_argument("--output", type=Path, help="write Markdown here, histograms beside it as .png")
    audit.set_defaults(run=audit_data)


def audit_data(arguments: argparse.Namespace) -> None:
    from hfbert.data.audit import audit_corpus
    from hfbert.data.collator import DataCollatorForPreTraining
    from hfbert.data.pair_plan import PairOptions
    from hfbert.data.pairs import SentencePairs
    from hfbert.training.audit_picture import draw_lengths

    tokenizer, corpus, scripts = read_for_audit(arguments)
    options = PairOptions(max_length=arguments.max_length)
    pairs = SentencePairs(corpus, options, tokenizer.cls_token_id, tokenizer.sep_token_id, seed=0)
    collate = DataCollatorForPreTraining(tokenizer, whole_word_mask=arguments.whole_word_mask)
    audit = audit_corpus(corpus, tokenizer, pairs, collate)
    facts = audit.facts | {f"unknown tokens in {name}": share for name, share in scripts.items()}
    lines = ["| | |", "|---|---|"]
    for name, fact in facts.items():
        told = fact if isinstance(fact, str) else f"{fact:,}" if isinstance(fact, int) else f"{fact:.4g}"
        lines.append(f"| {name} | {told.replace('|', chr(92) + '|')} |")
    page = "\n".join([*lines, "", *(f"* {sample}" for sample in audit.samples)]) + "\n"
    print(page, end="")
    if arguments.output is not None:
        arguments.output.write_text(page, encoding="utf-8")
        draw_lengths(audit.lengths, arguments.output.with_suffix(".png"))
    if audit.problems:
        raise ValueError(f"the pairs are not sound: {', '.join(audit.problems)}")


def read_for_audit(arguments: argparse.Namespace) -> tuple[Any, Any, dict[str, float]]:
    """The tokenizer, the ids and, where the text is at hand, the share of [UNK] in each script."""
    from hfbert.data.corpus import CorpusOptions, read_documents
    from hfbert.data.segmentation import ChineseWords
    from hfbert.data.shards import TOKENIZER, is_sharded, load_shards
    from hfbert.data.tokenized import tokenize_corpus
    from hfbert.data.tokenizer import check_tokenizer, load_tokenizer

    folder = Path(arguments.corpus)
    if is_sharded(folder):
        tokenizer = load_tokenizer(arguments.tokenizer or str(folder / TOKENIZER))
        return tokenizer, load_shards(folder, tokenizer), {}
    if arguments.tokenizer is None:
        raise ValueError("--tokenizer is required where the corpus is text")
    tokenizer = load_tokenizer(arguments.tokenizer)
    options = CorpusOptions(corpus=arguments.corpus, max_documents=arguments.max_documents)
    documents = list(read_documents(options))
    words = ChineseWords() if arguments.whole_word_mask else None
    corpus, _ = tokenize_corpus(documents, tokenizer, words)
    return tokenizer, corpus, check_tokenizer(tokenizer, documents)["unknown_share_by_script"]


def build_data(arguments: argparse.Namespace) -> None:
    from hfbert.data import shards
    from hfbert.data.corpus import CorpusOptions, describe_corpus, read_documents
    from hfbert.data.segmentation import ChineseWords
    from hfbert.data.tokenizer import load_tokenizer, save_tokenizer

    shard = int(os.environ.get("RANK", "0")) if arguments.shard is None else arguments.shard
    of = int(os.environ.get("WORLD_SIZE", "1")) if arguments.of is None else arguments.of
    part = shards.Part(shard, of)
    if arguments.shard_megabytes < 1:
        raise ValueError(f"--shard_megabytes {arguments.shard_megabytes} must be 1 or more")
    options = CorpusOptions(
        corpus=arguments.corpus,
        text_column=arguments.text_column,
        dataset_config_name=arguments.dataset_config_name,
        document_separator=arguments.document_separator,
        streaming=True,
    )
    tokenizer = load_tokenizer(arguments.tokenizer)
    counts = shards.build_shards(
        read_documents(options),
        tokenizer,
        arguments.out,
        describe_corpus(options),
        part,
        ChineseWords() if arguments.whole_word_mask else None,
        arguments.shard_megabytes * 1_000_000,
    )
    save_tokenizer(tokenizer, arguments.out / shards.TOKENIZER)
    print(", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in counts.items()))


def verify_data(arguments: argparse.Namespace) -> None:
    from hfbert.data.shards import is_sharded, verify_shards

    if not is_sharded(arguments.out):
        raise ValueError(f"{arguments.out} holds no shards: name the folder that `hfbert data build` wrote")
    problems = verify_shards(arguments.out)
    if problems:
        raise ValueError(
            f"{len(problems)} problems, the first: {problems[0]}; delete that shard and build again"
        )
    print("all shards are as they were written")


def add_report(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = words.add_parser("report", help="any number of runs side by side")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="output_dir of a run")
    report.add_argument("--output", type=Path, help="write the Markdown here, the picture beside it as .png")
    report.set_defaults(run=report_runs)


def report_runs(arguments: argparse.Namespace) -> None:
    from hfbert.training.comparison import summarise_run, to_markdown
    from hfbert.training.comparison_picture import draw_runs

    runs = [summarise_run(folder) for folder in arguments.runs]
    markdown = to_markdown(runs)
    print(markdown, end="")
    if arguments.output is not None:
        arguments.output.write_text(markdown, encoding="utf-8")
        draw_runs(runs, arguments.output.with_suffix(".png"))


def add_predict(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    predict = words.add_parser("predict", help="what a model says of each line of a file, as JSON lines")
    predict.add_argument("task", choices=("fill_mask", "next_sentence", "classify", "tag", "answer"))
    predict.add_argument("model", help="name or folder of a model with the head for it")
    predict.add_argument(
        "file",
        nargs="?",
        default="-",
        help="UTF-8 text, one a line, a second text after a tab; or JSON lines (.jsonl); - or none: stdin",
    )
    predict.add_argument("--top_k", type=int, default=5, help="most answers for each line")
    predict.add_argument("--batch_size", type=int, default=32, help="rows computed at once")
    predict.set_defaults(run=predict_lines)


def predict_lines(arguments: argparse.Namespace) -> None:
    from hfbert.predict_lines import predict_file

    num_failed = predict_file(
        arguments.task, arguments.model, arguments.file, arguments.top_k, arguments.batch_size
    )
    if num_failed:
        raise ValueError(f"{num_failed} lines could not be done: their `error` says why")
