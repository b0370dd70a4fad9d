"""Turn sentences into which of their tokens start a word, by spaces, punctuation and a Chinese segmenter.

"用iPhone15拍照" of 用 iphone ##15 拍 照  ->  [True, True, False, True, False]

Words are found in the text and laid over the tokens by characters, so that ids stay what they are and [UNK]
is a part of its word like any other piece.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

import numpy as np

from hfbert.data.sentences import HAN, INVISIBLE

# The characters at which the words of a text start, counted in that text; 0 and its end may be left out.
Cuts = set[int]
Segmenter = Callable[[str], Cuts]

_HAN = re.compile(f"[{HAN}]")
_UNSEEN = re.compile(rf"[\s{INVISIBLE}]")  # what splitting into sentences may drop
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(kw_only=True)
class WordOptions:
    """Where words come from when they are masked whole."""

    segmentation_file: str | None = None  # the corpus again, with spaces between words; none: rjieba's words


def cut_chinese(text: str) -> Cuts:
    """Where the words of rjieba start (the cuts of jieba)."""
    if not _HAN.search(text):
        return set(range(len(text)))  # nothing to join, and no dictionary to load
    import rjieba

    return {start for _, start, _ in rjieba.tokenize(_SURROGATE.sub("\ufffd", text))}


def find_word_starts(
    text: str, offsets: Sequence[tuple[int, int]], word_ids: Sequence[int | None], cuts: Cuts
) -> np.ndarray:
    """Whether each token starts a word: (tokens,) bool.

    `offsets` and `word_ids` are the tokenizer's, whose words end at spaces and punctuation and for which each
    Chinese character is one. They are joined where `cuts` have a longer word with a Chinese character in it,
    as T恤 has; words without one stay as the tokenizer has them.
    """
    starts = np.ones(len(offsets), dtype=bool)
    bounds = sorted({0, *cuts, len(text)})
    place = 0
    for token in range(1, len(offsets)):
        if word_ids[token] == word_ids[token - 1]:
            starts[token] = False
            continue
        begin, before = offsets[token][0], offsets[token - 1][0]
        while bounds[place + 1] <= before:
            place += 1
        is_inside = begin < bounds[place + 1]
        if is_inside and _HAN.search(text, bounds[place], bounds[place + 1]):
            starts[token] = False
    return starts


class ChineseWords:
    """Cuts by rjieba: the same for every document."""

    num_unfit = 0  # documents whose words are not known: none

    def open_document(self, number: int, text: str) -> Callable[[str], Cuts] | None:
        return cut_chinese


class GivenWords:
    """Cuts by a user's segmentation of the corpus: the same documents with spaces between their words.

    words = GivenWords(["深度学习很热。"], ["深度学习 很 热 。"])
    words.open_document(0, "深度学习很热。")("深度学习很热。")  ->  {0, 4, 5, 6}

    ValueError when there are not as many documents in both, with the first that differs.
    """

    def __init__(self, documents: Sequence[str], segmented: Sequence[str]) -> None:
        if len(documents) != len(segmented):
            pairs = zip_longest(documents, segmented, fillvalue="")
            number, (one, other) = next(
                (number, pair) for number, pair in enumerate(pairs) if _bare(pair[0]) != _bare(pair[1])
            )
            raise ValueError(
                f"--segmentation_file has {len(segmented):,} documents and --corpus {len(documents):,}; they "
                f"differ from document {number + 1} on: {other[:30]!r} and {one[:30]!r}"
            )
        self.segmented = segmented
        self.num_unfit = 0

    def open_document(self, number: int, text: str) -> Callable[[str], Cuts] | None:
        """What cuts the sentences of a document, to be asked in their order; None where it does not fit.

        A document whose characters, but for white space, are not those of its segmentation is counted.
        """
        words = [bare for word in self.segmented[number].split() if (bare := _bare(word))]
        if "".join(words) != _bare(text):
            self.num_unfit += 1
            return None
        starts = set(accumulate(map(len, words), initial=0))
        position = 0

        def cut(sentence: str) -> Cuts:
            nonlocal position
            cuts = set()
            for place, character in enumerate(sentence):
                if not _UNSEEN.match(character):
                    if position in starts:
                        cuts.add(place)
                    position += 1
            return cuts

        return cut


def _bare(text: str) -> str:
    return _UNSEEN.sub("", text)
