"""Turn token ids into word ids, so that the pieces of a word can be masked together.

[CLS] un ##believ ##able ! [SEP]  ->  -1 0 0 0 1 -1
"""

from collections.abc import Iterable

import numpy as np
from transformers import PreTrainedTokenizerBase

# B rows, S positions, V vocabulary
NO_WORD = -1


def find_continuations(tokenizer: PreTrainedTokenizerBase) -> np.ndarray | None:
    """Which ids are pieces that go on with a word (`##able`): (V,) bool, made once for a tokenizer.

    None when the tokenizer's model is no WordPiece, where a piece does not say whether it continues a word.
    """
    # The model is asked, not the vocabulary: byte-level vocabularies have pieces of '#' signs too.
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    prefix = getattr(model, "continuing_subword_prefix", None)
    if type(model).__name__ != "WordPiece" or not prefix:
        return None
    vocabulary = tokenizer.get_vocab()
    continues = np.zeros(max(vocabulary.values()) + 1, dtype=bool)
    continues[[number for piece, number in vocabulary.items() if is_continuation(piece, prefix)]] = True
    return continues


def is_continuation(piece: str, prefix: str = "##") -> bool:
    """`##able` is one; `##` alone, the sign written twice in a text, is a word of its own."""
    return len(piece) > len(prefix) and piece.startswith(prefix)


def word_ids_from_pieces(input_ids: np.ndarray, is_special: np.ndarray, continues: np.ndarray) -> np.ndarray:
    """Number the words of each row from 0; -1 on special tokens and padding.

    `input_ids` and `is_special` (B, S), `continues` (V,) from `find_continuations`; returns (B, S) int64. A
    continuation after a special token, where a text was cut inside a word, starts a word.
    """
    after_special = np.ones_like(is_special)
    after_special[:, 1:] = is_special[:, :-1]
    starts = ~is_special & (~continues[input_ids] | after_special)
    return np.where(is_special, NO_WORD, np.cumsum(starts, axis=1) - 1)


def read_word_ids(word_ids: Iterable[int | None]) -> np.ndarray:
    """A row's own `word_ids`, as fast tokenizers give them: None becomes -1; (S,) int64."""
    if isinstance(word_ids, list | tuple):
        word_ids = [NO_WORD if number is None else number for number in word_ids]
    return np.asarray(word_ids, dtype=np.int64)
