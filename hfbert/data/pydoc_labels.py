"""Turn the installed documentation into labelled rows: tasks whose answers it carries by construction.

"Returns ``None`` or"  ->  {"tokens": ["Returns", "None", "or"], "tags": ["O", "B-VALUE", "O"]}

Each function gives {"train": rows, "validation": rows}, the same on every call. A docstring is in one of the
two with all it says, and no text is in both. `max_rows` bounds the rows of each; None takes all there are.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from hfbert.data.prose import is_prose, split_blocks, strip_markup
from hfbert.data.pydoc import read_docstrings, read_pydoc
from hfbert.data.sentences import split_sentences

Parts = dict[str, list[dict[str, Any]]]

NUM_PACKAGES = 8
MAX_PACKAGE_ROWS = 1500  # of one package, so that the largest is no safe guess
MAX_WORDS = 40  # of a text; most of them fit 64 pieces of a vocabulary of 4,096
NUM_ENDINGS = 4
_OPENING_WORDS = range(10, MAX_WORDS + 1)
_SENTENCE_WORDS = range(5, 25)
# How a package is called in documentation, besides its name.
_ALIASES = {
    "scikit-learn": ("sklearn", "scikit learn", "scikit"),
    "torch": ("pytorch",),
    "transformers": ("hugging face", "huggingface", "🤗"),
}
_MARK = "\ue000"  # stands for a code term while markup is stripped and sentences are split
_CODE = re.compile(r"``\s*([^`\n]*[^`\s])\s*``")
# Code that its author did not mark, which would be a wrong answer: a_b, f(), aB, None, a.b.
_UNMARKED_CODE = re.compile(r"_|\w\(|[a-z][A-Z]|\b(?:None|True|False|NaN|nan)\b|\w\w\.\w\w|[a-z]\d|[=<>]")
_WORD = re.compile(r"(?:[a-z]\.){2,}|\d+(?:[.,]\d+)+(?:e-?\d+)?|\w+(?:[-'’]\w+)*|[^\w\s]")
_VALUE = re.compile(r"None|True|False|NaN|nan|[+-]?\d[\d.e+-]*|'[^']*'|\"[^\"]*\"|\(\)|\[\]|\{\}")
_NAME = re.compile(r"[^\W\d][\w.]*(?:\(\))?")


def package_rows(max_rows: int | None = None) -> Parts:
    """Which of the eight most documented packages a docstring opens like: "sentence", "label".

    The names of all eight are "it" in the text, so that a name neither gives the label away nor rules it out.
    """
    documents = list(read_pydoc())
    counts = Counter(document["package"] for document in documents)
    packages = [package for package, _ in counts.most_common(NUM_PACKAGES)]
    names = _names_of(packages)
    left = dict.fromkeys(packages, MAX_PACKAGE_ROWS)
    seen: set[str] = set()
    rows = []
    for document in shuffle(documents):
        package = document["package"]
        if left.get(package, 0):
            sentence = names.sub("it", _opening(document["text"]))
            if len(sentence.split()) in _OPENING_WORDS and is_new(sentence, seen):
                left[package] -= 1
                rows.append((document["name"], {"sentence": sentence, "label": package}))
    return divide(shuffle(rows), max_rows)  # mixed again: what came after a package was full lacks it


def _names_of(packages: Sequence[str]) -> re.Pattern[str]:
    """The packages' names in any case and inside longer words too, such as is_torch_available."""
    names = [name for package in packages for name in (package, *_ALIASES.get(package, ()))]
    forms = [re.escape(name).replace(r"\-", "[-_ ]?") for name in sorted(names, key=len, reverse=True)]
    return re.compile(rf"(?i)\w*(?:{'|'.join(forms)})\w*")


def _opening(text: str) -> str:
    """The first sentences that are no longer than `MAX_WORDS` together."""
    words: list[str] = []
    for sentence in find_sentences(text):
        more = sentence.split()
        if len(words) + len(more) > MAX_WORDS:
            break
        words += more
    return " ".join(words)


def pair_rows(max_rows: int | None = None) -> Parts:
    """Whether two sentences stand in the same docstring: "sentence1", "sentence2", "label" same or different.

    A different second sentence is the one of another docstring of the package in the same part; so each
    sentence is in one row, whose label it cannot give away alone.
    """
    found = []
    for document, runs in _readable_runs():
        sentences = [sentence for run in runs for sentence in run]
        if len(sentences) > 1:
            first, second = sorted(random.Random(document["name"]).sample(range(len(sentences)), 2))
            texts = {"sentence1": sentences[first], "sentence2": sentences[second]}
            found.append((document["name"], texts | {"package": document["package"]}))
    return {part: _exchange(rows) for part, rows in divide(found, max_rows).items()}


def _exchange(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the second sentences of every other row of a package to one another."""
    pairs: list[dict[str, Any]] = [dict(row, label="same") for row in rows]
    for numbers in _by_package(rows).values():
        chosen = numbers[1::2]
        if len(chosen) > 1:
            for number, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
                pairs[number] |= {"sentence2": rows[other]["sentence2"], "label": "different"}
    return [{key: pair[key] for key in ("sentence1", "sentence2", "label")} for pair in pairs]


def next_rows(max_rows: int | None = None) -> Parts:
    """Which of four sentences comes next: SWAG's columns "sent1", "sent2", "ending0" to "ending3", "label".

    Four docstrings of a package whose right endings are nearest in length share these four. So each ending is
    right once and wrong three times: neither its length nor its words alone tell anything.
    """
    found = []
    for document, runs in _readable_runs():
        neighbours = [pair for run in runs for pair in pairwise(run)]
        if neighbours:
            first, then = random.Random(document["name"]).choice(neighbours)
            found.append((document["name"], {"sent1": first, "next": then, "package": document["package"]}))
    return {part: _share_endings(rows) for part, rows in divide(found, max_rows).items()}


def _share_endings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    choices: dict[int, dict[str, Any]] = {}
    for numbers in _by_package(rows).values():
        numbers.sort(key=lambda number: len(rows[number]["next"]))
        for start in range(0, len(numbers) - NUM_ENDINGS + 1, NUM_ENDINGS):
            block = numbers[start : start + NUM_ENDINGS]
            for number in block:
                order = random.Random(rows[number]["sent1"]).sample(block, NUM_ENDINGS)
                endings = {f"ending{place}": rows[other]["next"] for place, other in enumerate(order)}
                texts = {"sent1": rows[number]["sent1"], "sent2": ""}
                choices[number] = texts | endings | {"label": order.index(number)}
    return [choices[number] for number in sorted(choices)]


def _by_package(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row["package"], []).append(number)
    return groups


def _readable_runs() -> Iterator[tuple[dict[str, str], list[list[str]]]]:
    """Documents, packages mixed, with what stands together in a paragraph and can be read with ease.

    A sentence is kept where it first appears; a run ends where one is left out.
    """
    seen: set[str] = set()
    for document in shuffle(list(read_pydoc())):
        runs: list[list[str]] = []
        for paragraph in document["text"].split("\n\n"):
            runs.append([])
            for sentence in find_sentences(paragraph):
                if len(sentence.split()) in _SENTENCE_WORDS and is_new(sentence, seen):
                    runs[-1].append(sentence)
                else:
                    runs.append([])
        yield document, runs


def entity_rows(max_rows: int | None = None) -> Parts:
    """Code terms in prose, from the double backticks round them, which are gone: "tokens", "tags" in IOB2.

    VALUE for what is written as a value (None, 3, "text"), NAME for a name with or without its brackets
    (a.b, f()), CODE for all other terms. Paragraphs with single backticks are left out, since those may mean
    code or anything else. Half the sentences have a term.
    """
    found: dict[bool, list[tuple[str, dict[str, Any]]]] = {True: [], False: []}
    seen_blocks: set[str] = set()
    seen: set[str] = set()
    for row in read_docstrings():
        if "``" in row["docstring"]:  # its author marks code
            for block in split_blocks(row["docstring"]):
                if block not in seen_blocks:
                    seen_blocks.add(block)
                    for tokens, tags in _tag_block(block):
                        if len(tokens) <= MAX_WORDS and is_new(" ".join(tokens), seen):
                            has_term = any(tag != "O" for tag in tags)
                            found[has_term].append((row["name"], {"tokens": tokens, "tags": tags}))
    with_term, without = found[True], shuffle(found[False])[: len(found[True])]
    return divide(shuffle([*with_term, *without]), max_rows)


def _tag_block(block: str) -> list[tuple[list[str], list[str]]]:
    """The tokens and tags of each sentence of a paragraph; none if it is no prose or marks code otherwise."""
    terms = _CODE.findall(block)
    marked = _CODE.sub(_MARK, block)
    if "`" in marked or not is_prose(_CODE.sub(r"\1", block)):
        return []
    text = strip_markup(marked)
    if text.count(_MARK) != len(terms):  # one went with an address, or the mark is in the text
        return []
    rest = iter(terms)
    tagged = []
    for sentence in find_sentences(text):
        own_terms = [next(rest) for _ in range(sentence.count(_MARK))]
        if not _UNMARKED_CODE.search(sentence):
            tagged.append(_tokenise(sentence, own_terms))
    return tagged


def _tokenise(sentence: str, terms: list[str]) -> tuple[list[str], list[str]]:
    tokens: list[str] = []
    tags: list[str] = []
    for part, term in zip(sentence.split(_MARK), [*terms, ""], strict=True):
        between, own = _WORD.findall(part), _WORD.findall(term)
        tokens += [*between, *own]
        tags += ["O"] * len(between)
        tags += [f"{'I' if number else 'B'}-{_kind_of(term)}" for number in range(len(own))]
    return tokens, tags


def _kind_of(term: str) -> str:
    if _VALUE.fullmatch(term):
        return "VALUE"
    return "NAME" if _NAME.fullmatch(term) else "CODE"


def find_sentences(text: str) -> list[str]:
    """The sentences of a text; dotted names such as torch.Tensor, which the splitter cuts, stay whole."""
    sentences: list[str] = []
    for part in split_sentences(text):
        if sentences and sentences[-1].endswith(".") and sentences[-1] + part in text:
            sentences[-1] += part
        else:
            sentences.append(part)
    return sentences


def is_new(text: str, seen: set[str]) -> bool:
    """Whether no text with the same letters and digits was seen; from now on it was."""
    key = "".join(filter(str.isalnum, text.casefold()))
    is_first = key not in seen
    seen.add(key)
    return is_first


def shuffle(items: Sequence[Any]) -> list[Any]:
    """The items in another order, always the same one."""
    return random.Random(0).sample(items, len(items))


def divide(named_rows: Iterable[tuple[str, dict[str, Any]]], max_rows: int | None) -> Parts:
    """A tenth of the docstrings, by their names, is for validation; of each part the first `max_rows`."""
    parts: Parts = {"train": [], "validation": []}
    for name, row in named_rows:
        is_held_out = hashlib.sha256(name.encode()).digest()[0] < 26
        parts["validation" if is_held_out else "train"].append(row)
    return {part: rows[:max_rows] for part, rows in parts.items()}
