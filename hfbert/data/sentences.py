"""Turn a document into its sentences.

"Dr. Who left.\n他说：“你好。”Then he left."  ->  ["Dr. Who left.", "他说：“你好。”", "Then he left."]
"""

import re
from collections.abc import Iterator

import sentencex

# Zero width space, non-joiner, joiner, word joiner, byte order mark: not to be seen, yet kept by str.strip.
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"

_BLANK = re.compile(rf"[\s{INVISIBLE}]*")
HAN = "\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HAN_CHARACTER = re.compile(f"[{HAN}]")
_KANA = re.compile("[\u3040-\u30ff]")
_LATIN = re.compile("[A-Za-z]")
_WIDE = f"{HAN}\u3040-\u30ff\u3000-\u303f\uff00-\uffef“”‘’…—"
_BREAK_BETWEEN_WIDE = re.compile(f"(?<=[{_WIDE}])[ \t]*\n[ \t]*(?=[{_WIDE}])")
_LINE_BREAK = re.compile(r"[ \t]*\n[ \t]*")
_PARAGRAPH_BREAK = re.compile(rf"\n[\s{INVISIBLE}]*\n")
_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be written as UTF-8
# sentencex steps back one byte over white space of two or three, and panics.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")


def is_blank(text: str) -> bool:
    """Whether a reader would see nothing of the text."""
    return _BLANK.fullmatch(text) is not None


def split_sentences(document: str) -> list[str]:
    """The sentences of a document, stripped of white space at their ends; blank ones are left out.

    A blank line always ends a sentence and a single line break never does: it becomes a space, or nothing
    between two Chinese or Japanese characters. No other text is lost. Works for every str, lone surrogates
    included.
    """
    text = document.replace("\r\n", "\n").replace("\r", "\n")
    sentences = (
        sentence.strip()
        for paragraph in _PARAGRAPH_BREAK.split(text)
        for sentence in _split_paragraph(_LINE_BREAK.sub(" ", _BREAK_BETWEEN_WIDE.sub("", paragraph.strip())))
    )
    return [sentence for sentence in sentences if not is_blank(sentence)]


def _split_paragraph(paragraph: str) -> Iterator[str]:
    # What stands in has the same length, so that the boundaries found in it hold for the paragraph itself.
    stand_in = _WIDE_SPACE.sub(" ", _SURROGATE.sub("\ufffd", paragraph))
    start = 0
    for sentence in sentencex.segment(_language(stand_in), stand_in):
        yield paragraph[start : start + len(sentence)]
        start += len(sentence)
    assert start == len(paragraph)


def _language(text: str) -> str:
    """The language whose abbreviations and quotes hold: that of the script with more letters."""
    num_kana, num_han = len(_KANA.findall(text)), len(_HAN_CHARACTER.findall(text))
    if num_kana + num_han <= len(_LATIN.findall(text)):
        return "en"
    return "ja" if num_kana else "zh"
