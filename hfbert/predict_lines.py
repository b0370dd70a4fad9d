"""Turn the lines of a file into JSON lines of what a model says of them.

"classify", runs/package/model, "Draw a line plot.\\n"  ->  [{"label": "matplotlib", "score": 0.97}, ...]
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

from transformers.utils import logging

from hfbert.predict import (
    Predictor,
    answer,
    classify,
    fill_mask,
    find_masks,
    load_predictor,
    next_sentence,
    tag,
)

CHUNK = 2048  # lines computed before they are printed, sorted by length among themselves


def predict_file(task: str, model: str, file: str, top_k: int, batch_size: int) -> int:
    """Print a line of JSON for each line of the file, "-" for stdin; how many of them could not be done.

    Lines are texts, for pairs and questions two with a tab between. In a .jsonl file, and on stdin where they
    start with a brace, they are objects with "text" (and "text_pair"), or "question" and "context".
    ValueError in one line for what stops the work.
    """
    if top_k < 1:
        raise ValueError(f"--top_k {top_k} must be 1 or more")
    lines = _read_lines(file)
    logging.set_verbosity_error()  # what is read of a checkpoint and what is not is no news here
    logging.disable_progress_bar()
    predictor = load_predictor(task, model, batch_size)
    num_failed = 0
    while chunk := list(islice(lines, CHUNK)):
        for result in predict_chunk(predictor, chunk, top_k):
            num_failed += isinstance(result, dict) and "error" in result
            text = json.dumps(result, ensure_ascii=False, allow_nan=False)  # NaN is no JSON, and no answer
            print(text.encode("utf-8", "replace").decode())
    return num_failed


def _read_lines(file: str) -> Iterator[tuple[str, bool]]:
    """Each line and whether it is JSON; a file that cannot be opened is refused at once."""
    if file == "-":
        return ((line.rstrip("\r\n"), line.startswith("{")) for line in sys.stdin)
    return _decode(open(file, "rb"), file)


def _decode(stream: IO[bytes], file: str) -> Iterator[tuple[str, bool]]:
    with stream:
        for number, line in enumerate(stream, start=1):
            encoding = "utf-8-sig" if number == 1 else "utf-8"  # a byte order mark is no text
            try:
                yield line.decode(encoding).rstrip("\r\n"), file.endswith(".jsonl")
            except UnicodeDecodeError:
                raise ValueError(f"{file}, line {number}: not UTF-8; convert it first") from None


def predict_chunk(predictor: Predictor, lines: Sequence[tuple[str, bool]], top_k: int) -> list[Any]:
    """What is said of each line, or {"error": why not}."""
    read: list[Any] = []
    for line, is_json in lines:
        try:
            read.append(_parse(line, is_json, predictor))
        except ValueError as error:
            read.append(error)
    good = [item for item in read if not isinstance(item, ValueError)]
    said = iter(_predict(predictor, good, top_k))
    return [{"error": str(item)} if isinstance(item, ValueError) else next(said) for item in read]


def _parse(line: str, is_json: bool, predictor: Predictor) -> str | tuple[str, ...]:
    """The text of a line, or its two; ValueError for one that does not fit the task."""
    task = predictor.task
    first, second = ("question", "context") if task == "answer" else ("text", "text_pair")
    if is_json:
        try:
            row = json.loads(line)
        except RecursionError:
            raise ValueError("nested too deeply for a line of text") from None
        if not isinstance(row, dict) or not isinstance(row.get(first), str):
            raise ValueError(f"no text under {first!r}")
        parts = [row[name] for name in (first, second) if isinstance(row.get(name), str)]
    else:
        parts = [line] if task in ("fill_mask", "tag") else line.split("\t", 1)
    if task in ("next_sentence", "answer") and len(parts) < 2:
        raise ValueError(f"one text where {task} needs two, with a tab between")
    if task == "fill_mask":
        find_masks(parts[0], str(predictor.tokenizer.mask_token))
    return parts[0] if len(parts) == 1 or task in ("fill_mask", "tag") else tuple(parts)


def _predict(predictor: Predictor, items: list[Any], top_k: int) -> list[Any]:
    if predictor.task == "fill_mask":
        return fill_mask(predictor, items, top_k)
    if predictor.task == "next_sentence":
        return next_sentence(predictor, items)
    if predictor.task == "classify":
        return classify(predictor, items, top_k)
    return tag(predictor, items) if predictor.task == "tag" else answer(predictor, items, top_k)
