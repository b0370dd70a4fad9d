"""Word boundaries from pieces: hand-worked rows and the tokenizer's own `word_ids()` as oracle."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import BertTokenizer, PreTrainedTokenizerFast

from hfbert.data.words import find_continuations, is_continuation, read_word_ids, word_ids_from_pieces

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##believ ##able ! the , cat ##s # ## 深 度 学 习"
PIECES = VOCABULARY.split()


@pytest.fixture
def tokenizer():
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def to_ids(tokenizer, pieces):
    return tokenizer.convert_tokens_to_ids(pieces.split())


def number_words(tokenizer, ids):
    ids = np.array([ids])
    is_special = np.isin(ids, tokenizer.all_special_ids)
    return word_ids_from_pieces(ids, is_special, find_continuations(tokenizer))[0].tolist()


def test_pieces_that_go_on_with_a_word_are_found(tokenizer):
    continues = find_continuations(tokenizer)
    assert [PIECES[i] for i in np.flatnonzero(continues)] == ["##believ", "##able", "##s"]


def test_two_number_signs_alone_are_a_word():
    assert is_continuation("##s") and not is_continuation("##") and not is_continuation("#a")


@pytest.mark.parametrize(
    "text", ["unbelievable cats!", "the cat, the cats", "深度学习", "the 深度 cats", "# # cats"]
)
def test_words_are_those_of_the_fast_tokenizer_in_english_and_chinese(tokenizer, text):
    encoding = tokenizer(text)
    assert tokenizer.unk_token_id not in encoding["input_ids"]
    expected = [-1 if number is None else number for number in encoding.word_ids()]
    assert number_words(tokenizer, encoding["input_ids"]) == expected


def test_words_by_hand(tokenizer):
    ids = to_ids(tokenizer, "[CLS] un ##believ ##able ! [SEP] cat ##s [SEP]")
    assert number_words(tokenizer, ids) == [-1, 0, 0, 0, 1, -1, 2, 2, -1]


def test_a_piece_after_a_special_token_starts_a_word(tokenizer):
    ids = to_ids(tokenizer, "[CLS] ##able ! [SEP] ##s cat [SEP] [PAD]")
    assert number_words(tokenizer, ids) == [-1, 0, 1, -1, 2, 3, -1, -1]


def test_a_row_that_starts_inside_a_word_is_numbered_from_0(tokenizer):
    ids = to_ids(tokenizer, "##able ##s !")
    assert number_words(tokenizer, ids) == [0, 0, 1]


def test_tokenizers_whose_pieces_do_not_tell_have_no_table():
    # The vocabulary has the signs; the model is no WordPiece, so that they say nothing.
    model = models.BPE(vocab={"[UNK]": 0, "##": 1, "##a": 2}, merges=[], unk_token="[UNK]")
    assert (
        find_continuations(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="[UNK]"))
        is None
    )


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_a_rows_own_word_ids_are_read_from_any_sequence(kind):
    word_ids = read_word_ids(kind([-1, 0, 0, 1, -1]))
    assert word_ids.tolist() == [-1, 0, 0, 1, -1] and word_ids.dtype == np.int64


def test_none_in_a_rows_own_word_ids_is_no_word():
    assert read_word_ids([None, 0, 0, None]).tolist() == [-1, 0, 0, -1]
