"""Turn documented parameters into questions whose answer stands in the text: the type of one, or its default.

dim (int): The dimension. keep (bool): Whether to keep it. Default: False.
    ->  {"question": "What is the default of keep?", "answers": {"text": ["False"], "answer_start": [68]}}
"""

import inspect
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hfbert.data.pydoc import read_docstrings
from hfbert.data.pydoc_labels import Parts, divide, is_new, shuffle

# A context and its question fit 64 pieces of a vocabulary of 4,096, with few exceptions.
MAX_CONTEXT_WORDS = 50  # words, parts of a name and punctuation marks
MAX_SENTENCE_WORDS = 8  # of what is said of one parameter, in words between spaces
_MAX_TYPE_WORDS = 6

# "dim (int, optional): How", "dim : int, optional" (what it says follows below), ":param int dim: How"
_HEADERS = (
    re.compile(r" *\*{0,2}(?P<name>\w+) ?\((?P<type>(?:[^()]|\([^()]*\))+)\) ?: ?(?P<text>.*)"),
    re.compile(r" *\*{0,2}(?P<name>\w+) : (?P<type>\S.*)(?P<text>)"),
    re.compile(r" *:param (?:(?P<type>[^:]+) )?\*{0,2}(?P<name>\w+): ?(?P<text>.*)"),
)
_SPHINX_TYPE = re.compile(r" *:type (\w+): *(.+)")
_SEE_ALSO = re.compile(r"\n *See [Aa]lso\n")  # what stands below looks like parameters
_UNIT = re.compile(r"[^\W_]+|[^\w\s]|_")
_REFERENCE = re.compile(r"\[`~?([^`]+)`\]|:[a-z:]+:`~?([^`]+)`")  # [`~a.B`], :class:`~a.B`
_DIRECTIVE = re.compile(r"\.\. \w+::.*")
_MARKUP = re.compile(r"`+|(?<!\w)\*+|\*+(?!\w)")
_LINK = r"(?i: to| is| of| ?[:=])"
_CONSTANT = (
    r"(?:None|True|False|[-+]?\d+(?:\.\d+)?(?:e-?\d+)?|\"[^\"]{1,30}\"|'[^']{1,30}')(?![\w.]*\w| ?[-+*/])"
)
# "default True", "Defaults to 0.5", "Default: auto."; a word that goes on, as in "defaults to the", is none.
_DEFAULT = re.compile(
    r"\b(?i:defaults?(?: values?)?)"
    rf"(?:{_LINK}* *(?P<constant>{_CONSTANT})"
    rf"|{_LINK}+ *(?P<word>[A-Za-z_]\w*(?:\.\w+)*)(?=[.,;)\]]+(?:\s|$)|$))"
)
_TYPE_END = re.compile(r"(?:,? *\(?| +(?:of|with) )\b(?:shape|optional|defaults?|required|keyword)\b.*")
_TYPE = re.compile(r"[A-Za-z_][\w., |\[\]/-]*")
_SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[^a-z])")


@dataclass(frozen=True)
class Parameter:
    """A documented parameter: its text, and where in it its type and its default stand."""

    name: str
    text: str
    type: tuple[int, int] | None
    default: tuple[int, int] | None


def answer_rows(max_rows: int | None = None) -> Parts:
    """Rows of the Hub's form for question answering: "id", "question", "context", "answers".

    A context holds two or more parameters of a docstring, so that it matters which one is asked for.
    {"train": rows, "validation": rows} as in `pydoc_labels`.
    """
    found = []
    seen: set[str] = set()
    for row in read_docstrings():
        for number, group in enumerate(_group(list(find_parameters(row["docstring"])))):
            asked = _ask(group, random.Random(f"{row['name']} {number}"))
            if asked is not None and is_new(asked["context"], seen):
                found.append((row["name"], {"id": f"{row['name']} {number}"} | asked))
    return divide(shuffle(found), max_rows)


def find_parameters(docstring: str) -> Iterator[Parameter]:
    """The parameters that a docstring describes in the style of Google, numpy or Sphinx, in their order."""
    lines = _SEE_ALSO.split(inspect.cleandoc(docstring))[0].splitlines()
    types = {match[1]: match[2] for match in map(_SPHINX_TYPE.fullmatch, lines) if match}
    header: re.Match[str] | None = None
    text = ""
    for line in [*lines, ""]:
        found = next(filter(None, (form.fullmatch(line) for form in _HEADERS)), None)
        if header and (found or not line.strip() or _indent(line) <= _indent(header[0])):
            yield from _make_parameter(header["name"], header["type"] or types.get(header["name"], ""), text)
            header = None
        if found:
            header, text = found, found["text"]
        elif header:
            text += f" {line.strip()}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _make_parameter(name: str, kind: str, text: str) -> Iterator[Parameter]:
    """The parameter as "name (type): text", none if nothing is said of it."""
    kind, text = (_strip_markup(part) for part in (kind, text))
    if text:
        head = f"{name} ({kind}): " if kind else f"{name}: "
        whole = head + _pick_sentences(text)
        found = _DEFAULT.search(whole)
        default = found.span("constant" if found["constant"] else "word") if found else None
        of_type = _TYPE_END.sub("", kind).rstrip("., ")
        is_type = _TYPE.fullmatch(of_type) and len(of_type.split()) <= _MAX_TYPE_WORDS
        start = len(name) + 2
        yield Parameter(name, whole, (start, start + len(of_type)) if is_type else None, default)


def _strip_markup(text: str) -> str:
    text = _REFERENCE.sub(lambda match: match[1] or match[2], _DIRECTIVE.sub("", text))
    return " ".join(_MARKUP.sub("", text).replace("::", ":").split())


def _pick_sentences(text: str) -> str:
    """The first sentence and the one that tells the default, each cut to what is read at a glance."""
    first, *others = _SENTENCE_END.split(text)
    picked = [first, *[one for one in others if _DEFAULT.search(one)][:1]]
    return " ".join(map(_shorten, picked))


def _shorten(sentence: str) -> str:
    words = sentence.split(" ")
    return sentence if len(words) <= MAX_SENTENCE_WORDS else " ".join(words[:MAX_SENTENCE_WORDS]) + " ..."


def _group(parameters: list[Parameter]) -> Iterator[list[Parameter]]:
    """Neighbours that together are no longer than `MAX_CONTEXT_WORDS`, two of them at least."""
    group: list[Parameter] = []
    for parameter in parameters:
        if group and _num_words([*group, parameter]) > MAX_CONTEXT_WORDS:
            yield group
            group = []
        group.append(parameter)
    yield group


def _num_words(group: list[Parameter]) -> int:
    return sum(len(_UNIT.findall(one.text)) for one in group)


def _ask(group: list[Parameter], draw: random.Random) -> dict[str, Any] | None:
    """A question on one of the parameters whose name is no other's; None if the context holds no such."""
    if len(group) < 2:
        return None
    names = [one.name for one in group]
    unique = [(number, one) for number, one in enumerate(group) if names.count(one.name) == 1]
    types = [(number, "What type is {}?", one.type) for number, one in unique if one.type]
    defaults = [(number, "What is the default of {}?", one.default) for number, one in unique if one.default]
    # Types are told several times as often as defaults.
    questions = defaults if defaults and (not types or draw.random() < 0.9) else types
    if not questions:
        return None
    number, form, (start, end) = draw.choice(questions)
    before = sum(len(one.text) + 1 for one in group[:number])
    return {
        "question": form.format(names[number]),
        "context": " ".join(one.text for one in group),
        "answers": {"text": [group[number].text[start:end]], "answer_start": [before + start]},
    }
