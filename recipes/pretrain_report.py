"""What a run of `pretrain.py` shows at its end: facts, scores, and guesses at words that it has never seen.

a model, held-out documents  ->  "the [MASK] sat", truth "cat", guesses [("dog", 0.4), ("cat", 0.3)]
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hfbert import DataCollatorForPreTraining, HFBertForPreTraining
from hfbert.data.tokenized import TokenizedCorpus

# The space that decoding puts between Chinese characters, which nobody writes.
WIDE = "[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]"
BETWEEN_WIDE = re.compile(rf"(?<={WIDE}) (?={WIDE}|\[MASK\])|(?<=\[MASK\]) (?={WIDE})")


def list_results(last: Mapping[str, Any]) -> list[tuple[str, float, float | None]]:
    """(metric, value, baseline or None) of the last evaluation."""
    names = ["masked_loss", "masked_accuracy", "next_sentence_loss", "next_sentence_accuracy"]
    names += [f"general_{name}" for name in names]
    return [
        (name.replace("_", " "), last[f"eval_{name}"], last.get(f"eval_{name}_baseline"))
        for name in names
        if f"eval_{name}" in last
    ]


def list_facts(
    recipe: Any,
    model: HFBertForPreTraining,
    tokenizer: PreTrainedTokenizerBase,
    corpus: TokenizedCorpus,
    metrics: list[dict[str, Any]],
    seconds: float,
) -> dict[str, str]:
    """What a reader of the table or the card wants to know of a run of `pretrain.py` with these options."""
    speeds = [row["tokens_per_second"] for row in metrics if "tokens_per_second" in row]
    train = recipe.train
    source = recipe.corpus.corpus
    if os.path.exists(source):
        source = Path(source).name  # the card is for others, and where it lay is no one's business
    return {
        "corpus": f"{source}: {len(corpus):,} documents, {corpus.num_tokens:,} tokens",
        "vocabulary": f"{len(tokenizer):,} pieces",
        "model": f"{model.config.num_hidden_layers} layers of {model.config.hidden_size}",
        "parameters": f"{model.num_parameters():,}",
        "sequences": f"up to {recipe.pairs.max_length} tokens, {train.global_batch_size} a step",
        "masking": f"{recipe.masking.mlm_probability:.0%} of tokens",
        "learning rate": f"{recipe.optim.learning_rate:g}",
        "steps": f"{metrics[-1]['step']:,}, {metrics[-1]['epoch'] + 1} epochs begun",
        "speed": f"{np.median(speeds):,.0f} tokens/s",
        "time": f"{seconds / 60:.1f} minutes in all",
    }


def choose_sentences(
    corpus: TokenizedCorpus, documents: np.ndarray, max_length: int, count: int
) -> list[list[int]]:
    """The first sentence of a readable length in each of `count` of the documents, as ids."""
    lengths = np.diff(corpus.sentence_offsets)
    is_readable = (lengths >= 8) & (lengths <= min(24, max_length - 2))
    chosen = []
    for document in np.random.default_rng(0).permutation(documents):
        first, last = corpus.document_offsets[document : document + 2]
        readable = np.flatnonzero(is_readable[first:last])
        if len(readable):
            start, end = corpus.sentence_offsets[first + readable[0] :][:2]
            chosen.append(corpus.tokens[start:end].tolist())
    return chosen[:count]


@torch.no_grad()
def guess_held_out(
    model: HFBertForPreTraining,
    tokenizer: PreTrainedTokenizerBase,
    corpus: TokenizedCorpus,
    documents: np.ndarray,
    max_length: int,
) -> list[dict[str, Any]]:
    """Ten sentences of the documents with some pieces masked, and the likeliest pieces at each mask."""
    collate = DataCollatorForPreTraining(tokenizer, mask_replace_prob=1.0, random_replace_prob=0.0)
    model.eval()
    rows = []
    for sentence in choose_sentences(corpus, documents, max_length, count=10):
        batch = collate([{"input_ids": [tokenizer.cls_token_id, *sentence, tokenizer.sep_token_id]}])
        labels = batch.pop("labels")[0]
        masked = labels != -100
        logits = model(**batch.to(model.device)).prediction_logits[0, masked]
        likeliest = logits.softmax(-1).topk(3)
        guesses = [
            list(zip(tokenizer.convert_ids_to_tokens(ids), probabilities, strict=True))
            for ids, probabilities in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        ]
        text = BETWEEN_WIDE.sub("", str(tokenizer.decode(batch["input_ids"][0, 1:-1])))
        truths = tokenizer.convert_ids_to_tokens(labels[masked].tolist())
        rows.append({"text": text, "truths": truths, "guesses": guesses})
    return rows
