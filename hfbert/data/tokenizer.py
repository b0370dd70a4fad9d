"""Train, load and check a WordPiece tokenizer, and turn texts into token ids.

["Tea is hot."]  ->  [[812, 97, 1403, 8]]
"""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase

from hfbert.data.wordpiece import learn_pieces

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # ids 0 to 4
MIN_VOCAB_SIZE = 32  # the special tokens and an alphabet of 27
MAX_WORD_LENGTH = 100  # WordPiece gives [UNK] for longer words, so they have nothing to teach

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(kw_only=True)
class TokenizerOptions:
    """An existing tokenizer by name or path, or how to train one on the corpus.

    Raises ValueError for a vocabulary too small to hold an alphabet.
    """

    tokenizer: str | None = None  # name or path of an existing one; none trains one on the corpus
    vocab_size: int = 8192  # most pieces of a trained vocabulary, special tokens included
    do_lower_case: bool = True  # lower-case the text
    strip_accents: bool | None = None  # drop accents; none means when lower-casing
    tokenize_chinese_chars: bool = True  # each Chinese character is a word
    min_frequency: int = 2  # characters and pieces that are rarer are left out

    def __post_init__(self) -> None:
        if self.vocab_size < MIN_VOCAB_SIZE:
            raise ValueError(
                f"vocab_size={self.vocab_size} has no room for the special tokens and an alphabet: "
                f"give at least {MIN_VOCAB_SIZE}"
            )
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency={self.min_frequency} keeps what never occurs: give at least 1")


def train_tokenizer(
    sentences: Iterable[str], options: TokenizerOptions, model_max_length: int
) -> BertTokenizer:
    """Learn a vocabulary of at most `options.vocab_size` pieces; the same sentences always give the same one.

    Raises ValueError for sentences without any word.
    """
    words = _count_words(sentences, _build(SPECIAL_TOKENS, options))
    if not words:
        raise ValueError("--corpus holds no words to train a tokenizer on; name a corpus with text in it")
    num_pieces = options.vocab_size - len(SPECIAL_TOKENS)
    pieces = [*SPECIAL_TOKENS, *learn_pieces(words, num_pieces, options.min_frequency)]
    return _build(pieces, options, model_max_length=model_max_length)


def _build(pieces: list[str], options: TokenizerOptions, **settings: Any) -> BertTokenizer:
    return BertTokenizer(
        vocab={piece: index for index, piece in enumerate(pieces)},
        do_lower_case=options.do_lower_case,
        strip_accents=options.strip_accents,
        tokenize_chinese_chars=options.tokenize_chinese_chars,
        **settings,
    )


def _count_words(sentences: Iterable[str], tokenizer: BertTokenizer) -> Counter[str]:
    normalizer, pre_tokenizer = (
        tokenizer.backend_tokenizer.normalizer,
        tokenizer.backend_tokenizer.pre_tokenizer,
    )
    words: Counter[str] = Counter()
    for sentence in sentences:
        normal = normalizer.normalize_str(_replace_surrogates(sentence))
        words.update([word for word, _ in pre_tokenizer.pre_tokenize_str(normal)])
    return Counter({word: count for word, count in words.items() if len(word) <= MAX_WORD_LENGTH})


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: str | os.PathLike[str]) -> None:
    """Write what `AutoTokenizer` reads, and for WordPiece also the `vocab.txt` that older tools ask for."""
    tokenizer.save_pretrained(folder)
    if isinstance(tokenizer, BertTokenizer):
        vocabulary = tokenizer.get_vocab()
        lines = "".join(f"{piece}\n" for piece in sorted(vocabulary, key=vocabulary.__getitem__))
        (Path(folder) / "vocab.txt").write_text(lines, encoding="utf-8", newline="\n")


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """Any BERT tokenizer: a name on the Hub, a folder, or a vocab.txt.

    Raises ValueError when there is none, or when it lacks one of the five special tokens.
    """
    path = Path(os.path.expanduser(name_or_path))
    try:
        if path.is_file():
            tokenizer: PreTrainedTokenizerBase = _from_vocabulary_file(path, {})
        elif (path / "vocab.txt").is_file() and not (path / "tokenizer.json").is_file():
            tokenizer = _from_vocabulary_file(
                path / "vocab.txt", _read_settings(path / "tokenizer_config.json")
            )
        elif (path / "tokenizer.json").is_file() and not (path / "tokenizer_config.json").is_file():
            tokenizer = _from_pipeline_file(path / "tokenizer.json")
        else:
            tokenizer = AutoTokenizer.from_pretrained(str(path) if path.is_dir() else name_or_path)
    except Exception as error:  # a missing name and a broken file raise different types in every version
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise ValueError(
            f"--tokenizer {name_or_path[-100:]} cannot be loaded ({reason}); "
            "name a folder, a vocab.txt or a tokenizer on the Hub"
        ) from None
    missing = [
        name
        for name in ("pad", "unk", "cls", "sep", "mask")
        if getattr(tokenizer, f"{name}_token_id") is None
    ]
    if missing:
        raise ValueError(
            f"--tokenizer {name_or_path[-100:]} has no {', '.join(missing)} token; BERT needs all five"
        )
    return tokenizer


def _read_settings(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _from_vocabulary_file(path: Path, settings: dict[str, Any]) -> BertTokenizer:
    pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    vocabulary = {piece.removesuffix("\r"): index for index, piece in enumerate(pieces)}
    if not set(SPECIAL_TOKENS) <= set(vocabulary):
        raise ValueError(f"{path.name} does not hold {' '.join(SPECIAL_TOKENS)}")
    flags = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "model_max_length")
    known = {name: settings[name] for name in flags if name in settings}
    return BertTokenizer(vocab=vocabulary, **({"do_lower_case": not _has_capitals(vocabulary)} | known))


def _from_pipeline_file(path: Path) -> BertTokenizer:
    """A tokenizer.json without the tokenizer_config.json that names its special tokens."""
    pipeline = json.loads(path.read_text(encoding="utf-8"))
    normalizer = pipeline["normalizer"]
    if pipeline["model"]["type"] != "WordPiece" or normalizer["type"] != "BertNormalizer":
        raise ValueError(f"{path.name} is not a BERT tokenizer and has no tokenizer_config.json beside it")
    return BertTokenizer(
        vocab=pipeline["model"]["vocab"],
        do_lower_case=normalizer["lowercase"],
        strip_accents=normalizer["strip_accents"],
        tokenize_chinese_chars=normalizer["handle_chinese_chars"],
    )


def _has_capitals(vocabulary: Iterable[str]) -> bool:
    letters = (piece.removeprefix("##") for piece in vocabulary)
    return any(piece.isalpha() and piece != piece.lower() for piece in letters)


def _replace_surrogates(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)  # the backend raises TypeError for half a surrogate pair


def encode_plain(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The token ids of each text, no special tokens added; a typed "[SEP]" is the letters it is made of."""
    backend = tokenizer.backend_tokenizer
    # What is set here lasts until the next call of the tokenizer, which sets all three to what it needs.
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    # Faster by half than calling the tokenizer, which also works out offsets and builds a dict of lists.
    plain = [_replace_surrogates(text) for text in texts]
    return [encoding.ids for encoding in backend.encode_batch_fast(plain, add_special_tokens=False)]


def encode_with_offsets(
    texts: list[str], tokenizer: PreTrainedTokenizerBase
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """As `encode_plain`, with the characters each token stands for: text[start:end]."""
    return [(encoding.ids, encoding.offsets) for encoding in encode(texts, tokenizer)]


def encode_with_words(
    texts: list[str], tokenizer: PreTrainedTokenizerBase
) -> list[list[tuple[list[int], int, int]]]:
    """The words of each text: the ids of a word's pieces, and its text[start:end].

    Words end at white space and punctuation, and each Chinese character is one.
    """
    found = []
    for encoding in encode(texts, tokenizer):
        words: dict[int, tuple[list[int], int, int]] = {}
        for number, token, (start, end) in zip(
            encoding.word_ids, encoding.ids, encoding.offsets, strict=True
        ):
            ids, first, _ = words.get(number, ([], start, end))
            words[number] = ([*ids, token], first, end)
        found.append(list(words.values()))
    return found


def encode(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[Any]:
    """As `encode_plain`, as whole `tokenizers.Encoding`s with ids, offsets and word_ids."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    plain = [_replace_surrogates(text) for text in texts]
    return backend.encode_batch(plain, add_special_tokens=False)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> dict[str, Any]:
    """How well a tokenizer fits texts: share of [UNK] overall and by script, pieces per word, letter case.

    "case_matches" is False when the tokenizer keeps capitals that its vocabulary does not have, or lower-
    cases while the vocabulary has capitals.
    """
    pieces: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    num_words = 0
    for text in map(_replace_surrogates, texts):
        encoding = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)[0]
        num_words += len(set(encoding.word_ids))
        for token, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
            script = _script(text[start])
            pieces[script] += 1
            unknown[script] += token == tokenizer.unk_token_id
    lower_cases = tokenizer.backend_tokenizer.normalizer.normalize_str("A") == "a"
    return {
        "vocab_size": len(tokenizer),
        "tokens": pieces.total(),
        "unknown_share": unknown.total() / max(pieces.total(), 1),
        "unknown_share_by_script": {script: unknown[script] / pieces[script] for script in sorted(pieces)},
        "pieces_per_word": pieces.total() / max(num_words, 1),
        "do_lower_case": lower_cases,
        "case_matches": lower_cases != _has_capitals(tokenizer.get_vocab()),
    }


def _script(character: str) -> str:
    """ "Latin", "Han", "Hiragana", ... by the first word of a letter's Unicode name; "Other" for the rest."""
    if not character.isalpha():
        return "Digit" if character.isdigit() else "Other"
    name = unicodedata.name(character, "OTHER").split()[0].split("-")[0]
    return "Han" if name == "CJK" else name.capitalize()
