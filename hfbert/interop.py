"""Turn a pretrained BERT into one with more positions, or with another vocabulary, that knows what it knew.

model of 128 positions, 512  ->  512 positions, of which 128-255, 256-383 ... start as copies of 0-127
vocabulary without "心肌梗塞"  ->  its row starts as the mean of those of 心 肌 梗 塞
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase


@torch.no_grad()
def extend_positions(model: Any, num_positions: int) -> None:
    """Give an `HFBertForPreTraining` at least so many positions; new ones repeat the table from its start.

    A copy keeps near positions apart as before, which random rows would have to learn again (Beltagy et al.,
    2020, "Longformer", section 5).
    """
    embeddings = model.bert.embeddings
    old = embeddings.position_embeddings.weight
    if num_positions <= len(old):
        return
    table = nn.Embedding(num_positions, old.shape[1], dtype=old.dtype, device=old.device)
    table.weight.copy_(old.repeat(-(-num_positions // len(old)), 1)[:num_positions])
    embeddings.position_embeddings = table
    model.config.max_position_embeddings = num_positions


@torch.no_grad()
def change_vocabulary(model: Any, old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase) -> int:
    """Move an `HFBertForPreTraining` to another vocabulary; how many of its pieces are new.

    A piece that both have keeps its row and its output bias; a new one starts from the mean over the pieces
    that the old tokenizer cuts it into.
    """
    sources = [_find_sources(piece, old) for piece in _in_order(new)]
    # Tied, the two are one matrix and are filled alike.
    before = [one.weight.clone() for one in _find_matrices(model)]
    biases = model.cls.predictions.bias.clone()
    model.resize_token_embeddings(len(sources), mean_resizing=False)
    for matrix, rows in zip(_find_matrices(model), before, strict=True):
        matrix.weight.copy_(torch.stack([rows[ids].mean(0) for ids in sources]))
    model.cls.predictions.bias.copy_(torch.stack([biases[ids].mean() for ids in sources]))
    model.config.pad_token_id = new.pad_token_id
    known = old.get_vocab()
    return sum(piece not in known for piece in _in_order(new))


def _find_matrices(model: Any) -> list[Any]:
    return [model.get_input_embeddings(), model.get_output_embeddings()]


def _in_order(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _find_sources(piece: str, old: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the old vocabulary that a piece starts from."""
    known = old.get_vocab()
    if piece in known:
        return [known[piece]]
    goes_on = piece.startswith("##") and len(piece) > 2
    ids = old(piece[2:] if goes_on else piece, add_special_tokens=False)["input_ids"]
    if goes_on and ids:  # inside a word its first piece is one that goes on, too
        ids = [known.get(f"##{old.convert_ids_to_tokens(ids[0])}", ids[0]), *ids[1:]]
    return ids or [old.unk_token_id]
