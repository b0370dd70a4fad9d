"""Turn counted words into a WordPiece vocabulary.

{"low": 5, "lower": 3}  ->  ["##e", "##o", "##r", "##w", "l", "##ow", "low", "##er", "lower"]
"""

from collections import Counter
from collections.abc import Iterator

from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def learn_pieces(words: Counter[str], num_pieces: int, min_frequency: int) -> list[str]:
    """At most `num_pieces` pieces; the same counts always give the same list.

    Characters come first, the most frequent before all others: a Chinese corpus needs thousands of them, and
    one that is left out is unknown for ever. What room is left goes to the pieces that WordPiece learns.
    """
    alphabet = _choose_alphabet(words, num_pieces, min_frequency)
    longer = _learn_longer(words, alphabet, num_pieces - len(alphabet), min_frequency)
    return list(dict.fromkeys([*sorted(alphabet), *longer]))


def _choose_alphabet(words: Counter[str], num_pieces: int, min_frequency: int) -> list[str]:
    """The pieces of one character, "a" at the start of a word and "##a" within, as far as there is room."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        counts[word[0]] += count
        for character in word[1:]:
            counts["##" + character] += count
    frequent = [piece for piece, count in counts.items() if count >= min_frequency]
    return sorted(frequent, key=lambda piece: (-counts[piece], piece))[:num_pieces]


def _learn_longer(words: Counter[str], alphabet: list[str], num_pieces: int, min_frequency: int) -> list[str]:
    """The pieces of two characters or more, in the order in which they are learned."""
    characters = sorted({piece[-1] for piece in alphabet})
    # The trainer numbers "##a" pieces in hash order and breaks ties by number, so two runs differ. Named as
    # special tokens they are numbered before it starts (seen with tokenizers 0.23).
    numbered = ["##" + character for character in characters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(numbered) + len(characters) + num_pieces,
        min_frequency=min_frequency,
        special_tokens=numbered,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(_repeat(words), trainer)
    vocabulary = learner.get_vocab()
    learned = sorted(vocabulary, key=vocabulary.__getitem__)[len(numbered) + len(characters) :]
    return learned[:num_pieces]


def _repeat(words: Counter[str]) -> Iterator[str]:
    """Each word as often as it occurs, a thousand in a text: the trainer takes no counts."""
    for word, count in sorted(words.items()):
        for done in range(0, count, 1000):
            yield " ".join([word] * min(1000, count - done))
