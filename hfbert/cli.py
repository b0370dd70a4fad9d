"""Turn `hfbert WORD ...` into a call of the package; thin, and quick to answer `--help`.

hfbert tokenizer check runs/tiny/model notes.txt  ->  the share of [UNK], overall and by script
"""

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `hfbert` command: exit code 0, or 2 after one line on stderr for bad input."""
    parser = argparse.ArgumentParser(prog="hfbert", description="Raw text in, a BERT on the Hub out.")
    words = parser.add_subparsers(dest="word", required=True, metavar="WORD")
    tokenizer = words.add_parser("tokenizer", help="look at a tokenizer")
    actions = tokenizer.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="how well it fits a text: share of [UNK], pieces a word")
    check.add_argument("tokenizer", help="name or folder of a tokenizer")
    check.add_argument("files", nargs="+", help="UTF-8 text files")
    check.set_defaults(run=check_tokenizer)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(f"hfbert: error: {' '.join(str(error).split())[:280]}", file=sys.stderr)
        raise SystemExit(2) from None


def check_tokenizer(arguments: argparse.Namespace) -> None:
    # Imported here: transformers takes seconds, and `--help` should not.
    from hfbert.data import tokenizer as room
    from hfbert.data.corpus import CorpusOptions, read_documents

    tokenizer = room.load_tokenizer(arguments.tokenizer)
    documents = (text for file in arguments.files for text in read_documents(CorpusOptions(corpus=file)))
    for name, value in room.check_tokenizer(tokenizer, documents).items():
        print(f"{name}: {value}")
