r"""Turn a docstring into its prose: the paragraphs a person would read aloud, without code or markup.

"Return the :class:`~a.Path` of a file.\n\n>>> f()\n1\n\nArgs:\n    x (int): How many times to try."
    ->  "Return the Path of a file.\n\nHow many times to try."
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

MIN_WORDS = 5
# Set by eye on random samples: below these a paragraph is a signature, a formula or a list of names.
MIN_PLAIN_WORD_SHARE = 0.8
MIN_FUNCTION_WORD_SHARE = 0.15

_FUNCTION_WORDS = frozenset(
    """
    a an and are as at be been but by can do does for from has have if in into is it its may must no not of
    on one only or other should so such than that the their them then there these they this those to used
    using was we when where which while will with within without you your
    """.split()  # noqa: SIM905 - sixty words read better as a text
)
_PROSE_DIRECTIVES = frozenset(
    {"note", "warning", "tip", "important", "caution", "hint", "attention", "topic"}
)
_PLAIN_WORD = re.compile(r"[(\"'“‘]*[A-Za-z]+(?:[-'’/][A-Za-z]+)*[)\"'”’]*[.,;:!?]*[)\"'”’]*")
_SENTENCE = re.compile(r"[\w\"'(].*[.!?:][)\"']*")
_NOT_PROSE = re.compile(
    r"https?://|www\.|\$|\\[a-zA-Z({]|[<>=+*|{}#@^~]{2,}|[{}|\\@]|\w=\w|\w\(\w*\)\.\w|</?\w"
)
_RULE = re.compile(r"""\s*([-=~^"'*+#_.:]{3,}|[=-]{2,}(\s+[=-]{2,})+)\s*""")
_TABLE_ROW = re.compile(r"\s*([|+].*[|+]|.*\s\|\s.*\|.*|.*\S {3,}\S.*)\s*")
_CODE_LINE = re.compile(
    r"\s*(>>>|\.\.\. |In \[\d*\]:|Out\[\d*\]:|\$ |% |#|@|import \w|from \w+ import |def \w|class \w+[:(])"
)
_DIRECTIVE = re.compile(r"\s*\.\.(?:\s+(?P<name>[\w-]+)::\s*(?P<argument>.*)|\s.*|)")
_FIELD = re.compile(r"\s*[:@](?P<name>[a-zA-Z]+)(?:\s+[^:]*)?:(?:\s+(?P<text>.*)|)")
_BULLET = re.compile(r"\s*(?:[-*+•·]|\d{1,2}[.)]|\(\w\)|[a-z]\))\s+(?P<text>.*)")
# "size (int, optional): How many", "size -- How many", "size : int" (what it says follows below)
_ITEM = re.compile(
    r"\s*(?:`[^`]*`|[*\"']*[\w./-]+[*\"']*(?:, \*{0,2}\w+)*)"
    r"(?:\s*\(.*?\)|\s*\[.*?\])?(?:\s*,?\s*\*optional\*[^:]*)?"
    r"(?:(?P<type_follows>\s+:)|:|\s+--|\s+–)(?:\s+(?P<text>.*)|)"
)


def extract_prose(docstring: str) -> str:
    """The prose paragraphs of a docstring, a blank line between them; "" when there is none."""
    paragraphs = map(strip_markup, split_blocks(docstring))
    return "\n\n".join(dict.fromkeys(paragraph for paragraph in paragraphs if is_prose(paragraph)))


def split_blocks(docstring: str) -> Iterator[str]:
    """The paragraphs, list items and descriptions of a docstring that are no code, with their markup."""
    return _blocks(_drop_code(_lines(docstring)))


def _lines(docstring: str) -> list[str]:
    return [line.rstrip() for line in inspect.cleandoc(docstring).splitlines()]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _drop_code(lines: list[str]) -> Iterator[str]:
    """The lines outside fences, doctests, literal blocks and directives that hold no prose."""
    fenced = doctest = False
    literal_indent: int | None = None  # what is indented deeper than this belongs to a literal block
    for line in lines:
        if literal_indent is not None and line and _indent(line) <= literal_indent:
            literal_indent = None
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            yield ""
        elif fenced or literal_indent is not None:
            continue
        else:
            doctest = bool(line) and (doctest or line.lstrip().startswith(">>>"))
            kept, opens_literal = ("", False) if doctest else _open_literal(line)
            literal_indent = _indent(line) if opens_literal else None
            yield from kept.split("\n")


def _open_literal(line: str) -> tuple[str, bool]:
    """What is left of a line, and whether the deeper lines after it are to be dropped."""
    directive = _DIRECTIVE.fullmatch(line)
    if directive:
        if directive["name"] in _PROSE_DIRECTIVES:
            return "\n" + " " * (_indent(line) + 3) + directive["argument"], False
        return "", True
    if line.endswith("::"):
        return (line[:-1] if line.strip() != "::" else "") + "\n", True
    return line, False


@dataclass
class _Block:
    """A paragraph, list item or parameter description while its lines are gathered."""

    is_item: bool
    indent: int
    rest_indent: int | None  # of the lines after the first; None while an item has one line
    lines: list[str]

    def takes(self, indent: int) -> bool:
        return indent >= self.indent if self.rest_indent is None else indent == self.rest_indent


def _blocks(lines: Iterator[str]) -> Iterator[str]:
    """Join the lines of each paragraph, list item or parameter description."""
    block: _Block | None = None
    for line in lines:
        if _RULE.fullmatch(line):
            block = None  # an underline: what stands above it is a heading
            continue
        text = "" if _CODE_LINE.match(line) or _TABLE_ROW.fullmatch(line) else line.strip()
        item = _item_text(line, block) if text else None
        if block and (not text or item is not None or not block.takes(_indent(line))):
            yield " ".join(block.lines).strip()
            block = None
        if text and block:
            block.rest_indent = _indent(line)
            block.lines.append(text)
        elif text:
            rest_indent = _indent(line) if item is None else None
            block = _Block(item is not None, _indent(line), rest_indent, [text if item is None else item])
    if block:
        yield " ".join(block.lines).strip()


def _item_text(line: str, block: _Block | None) -> str | None:
    """What a list item or a parameter's description says, None for a line that starts no item."""
    field = _FIELD.fullmatch(line)
    if field:
        return "" if field["name"] in ("type", "rtype") else field["text"] or ""
    bullet = _BULLET.fullmatch(line)
    if bullet:
        line = bullet["text"]
    # Within running text a line may happen to start with "word: "; only items follow items.
    elif block and not block.is_item and block.takes(_indent(line)):
        return None
    described = _ITEM.fullmatch(line)
    if described:
        return "" if described["type_follows"] else described["text"] or ""
    return line if bullet else None


_INLINE = [
    (re.compile(r"</?(?:Tip|br|p|b|i|em|strong|code|ul|li|a|div|span)(?:\s[^<>]*)?/?>"), ""),
    (re.compile(r"\s*\[(?:\d+|\w+)\]_"), ""),  # [1]_
    (re.compile(r"!?\[([^\[\]]+)\]\([^()\s]*\)"), r"\1"),  # [text](address)
    (re.compile(r"(?::[a-z]+)?:[a-z]+:`([^`<]+?)\s*<[^`]*>`"), r"\1"),  # :ref:`text <target>`
    (re.compile(r"(?::[a-z]+)?:[a-z]+:`~(?:[^`]*\.)?([^`.]+)`"), r"\1"),  # :class:`~a.b.C`
    (re.compile(r"(?::[a-z]+)?:[a-z]+:`[!.]?([^`]*)`"), r"\1"),  # :class:`C`
    (re.compile(r"\[?`{1,2}~(?:[^`]*\.)?([^`.]+)`{1,2}\]?"), r"\1"),  # [`~a.b.C`]
    (re.compile(r"\[`([^`]+)`\]"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`]*>`_{1,2}"), r"\1"),  # `text <address>`_
    (re.compile(r"(`{1,2})([^`]+)\1_{0,2}"), r"\2"),  # `code`, ``code``
    (re.compile(r"(?<!\w)(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?!\w)"), r"\2"),  # *emphasis*, **strong**
    (re.compile(r"(?<!\w)_([A-Za-z ]+)_(?!\w)"), r"\1"),  # _emphasis_
    (re.compile(r"\|(\w[\w ]*)\|"), r"\1"),  # |substitution|
    (re.compile(r"(?<![\w.])([A-Za-z]\w*[A-Za-z0-9])_(?![\w(])"), r"\1"),  # link_, but not __init__
    (re.compile(r"\s+"), " "),
]


def strip_markup(text: str) -> str:
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text.strip()


def is_prose(text: str) -> bool:
    words = text.split()
    if len(words) < MIN_WORDS or not _SENTENCE.fullmatch(text) or _NOT_PROSE.search(text):
        return False
    num_plain = sum(_PLAIN_WORD.fullmatch(word) is not None for word in words)
    num_function_words = sum(word.strip("(\"',.;:!?)").lower() in _FUNCTION_WORDS for word in words)
    return num_plain >= MIN_PLAIN_WORD_SHARE * len(
        words
    ) and num_function_words >= MIN_FUNCTION_WORD_SHARE * len(words)
