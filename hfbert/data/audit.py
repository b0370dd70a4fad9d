"""Turn a corpus of token ids into what one should know of it before training: sizes, pairs, masks, samples.

corpus, tokenizer  ->  Audit(facts={"documents": 29160, "random pairs": 0.497, ...}, lengths=..., samples=...)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from hfbert.data.collator import DataCollatorForPreTraining
from hfbert.data.masking import IGNORED_LABEL
from hfbert.data.pair_plan import IS_NEXT, IS_RANDOM
from hfbert.data.pairs import SentencePairs
from hfbert.data.tokenized import TokenizedCorpus

MAX_SAMPLES = 20_000  # pairs that are masked and counted
NUM_SHOWN = 3
Facts = dict[str, int | float | str]


@dataclass(frozen=True)
class Audit:
    """`facts` are counts (int), shares (float) and lists (str); `lengths` what a histogram is drawn of."""

    facts: Facts
    lengths: dict[str, np.ndarray]
    samples: list[str]

    @property
    def problems(self) -> list[str]:
        """What must not be: random pairs that are none."""
        names = ("random pairs of one document", "random pairs that are the true next")
        return [f"{name}: {self.facts[name]:,}" for name in names if self.facts.get(name)]


def audit_corpus(
    corpus: TokenizedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    pairs: SentencePairs,
    collate: DataCollatorForPreTraining,
) -> Audit:
    """Look at a corpus, at its pairs of the epoch they stand at, and at `MAX_SAMPLES` of them masked."""
    tokens = corpus.tokens[0 : corpus.num_tokens]
    sentence_lengths = np.diff(corpus.sentence_offsets)
    document_lengths = np.diff(corpus.sentence_offsets[corpus.document_offsets])
    counts = np.bincount(tokens, minlength=len(tokenizer))
    facts: Facts = {
        "documents": len(corpus),
        "documents that stand twice": count_duplicates(tokens, corpus),
        "sentences": corpus.num_sentences,
        "tokens": corpus.num_tokens,
        "unknown tokens": float(counts[tokenizer.unk_token_id] / max(corpus.num_tokens, 1)),
        "pieces of the vocabulary that occur": float((counts > 0).mean()),
        "commonest pieces": " ".join(tokenizer.convert_ids_to_tokens(np.argsort(-counts)[:20].tolist())),
        "tokens of a sentence, median": float(np.median(sentence_lengths)),
        "sentences of a document, median": float(np.median(np.diff(corpus.document_offsets))),
    }
    numbers = np.linspace(0, len(pairs) - 1, min(MAX_SAMPLES, len(pairs))).astype(int)
    rows = [pairs[int(number)] for number in numbers]
    facts |= audit_pairs(pairs, numbers) | audit_masks(rows, collate)
    lengths = {
        "tokens of a sentence": sentence_lengths,
        "tokens of a document": document_lengths,
        "positions of a sample": np.array([len(row["input_ids"]) for row in rows]),  # type: ignore[arg-type]
    }
    return Audit(facts, lengths, [show_sample(row, tokenizer, collate) for row in rows[:NUM_SHOWN]])


def count_duplicates(tokens: np.ndarray, corpus: TokenizedCorpus) -> int:
    """Documents with the very tokens of an earlier one."""
    bounds = corpus.sentence_offsets[corpus.document_offsets]
    keys = {hash(tokens[start:end].tobytes()) for start, end in pairwise(bounds)}
    return len(corpus) - len(keys)


def audit_pairs(pairs: SentencePairs, numbers: np.ndarray) -> Facts:
    """How many pairs are random and, of the samples with these numbers, whether they are that."""
    plan, text, tokens = pairs._plan, pairs._text, pairs._tokens
    starts, ends = text.bounds[text.first], text.bounds[text.last]
    is_random, is_next = plan.label == IS_RANDOM, plan.label == IS_NEXT
    is_inside = (plan.second_start >= starts[plan.document]) & (plan.second_end <= ends[plan.document])
    num_pairs = int((plan.label != IGNORED_LABEL).sum())
    facts: Facts = {
        "samples of an epoch": len(pairs),
        "pairs": num_pairs,
        "random pairs": float(is_random.sum() / max(num_pairs, 1)),
    }
    if pairs.options.pair_objective != "nsp":
        return facts
    same = 0
    for number in numbers[is_random[numbers]]:
        second = tokens[plan.second_start[number] : plan.second_end[number]]
        after = int(plan.first_end[number])
        is_called_random = pairs[int(number)]["next_sentence_label"] == IS_RANDOM
        same += is_called_random and np.array_equal(second, tokens[after : after + len(second)])
    sizes = plan.second_end - plan.second_start
    return facts | {
        "random pairs of one document": int((is_random & is_inside).sum()),
        "random pairs that are the true next": int(same),
        "tokens of B, true": float(sizes[is_next].mean()) if is_next.any() else 0.0,
        "tokens of B, random": float(sizes[is_random].mean()) if is_random.any() else 0.0,
    }


def audit_masks(rows: Sequence[dict[str, Any]], collate: DataCollatorForPreTraining) -> Facts:
    """Shares as they fall: of tokens that are predicted, and of what stands in their places."""
    predicted = maskable = 0
    seen = dict.fromkeys(("masked", "random", "kept"), 0)
    for start in range(0, len(rows), 256):
        part = rows[start : start + 256]
        batch = collate(part, return_tensors="np")
        ids, labels = np.asarray(batch["input_ids"]), np.asarray(batch["labels"])
        chosen = labels != IGNORED_LABEL
        predicted += int(chosen.sum())
        maskable += sum(int((1 - row["special_tokens_mask"]).sum()) for row in part)
        is_mask = ids[chosen] == collate.tokenizer.mask_token_id
        is_kept = ids[chosen] == labels[chosen]
        seen["masked"] += int(is_mask.sum())
        seen["kept"] += int((is_kept & ~is_mask).sum())
        seen["random"] += int((~is_kept & ~is_mask).sum())
    shares: Facts = {f"of those, {name}": count / max(predicted, 1) for name, count in seen.items()}
    return {"tokens that are predicted": predicted / max(maskable, 1)} | shares


def show_sample(
    row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, collate: DataCollatorForPreTraining
) -> str:
    """A masked sample as text: what was there in brackets behind what stands there now."""
    batch = collate([row], return_tensors="np")
    ids, labels = np.asarray(batch["input_ids"])[0], np.asarray(batch["labels"])[0]
    pieces = tokenizer.convert_ids_to_tokens(ids.tolist())
    truths = tokenizer.convert_ids_to_tokens(np.where(labels == IGNORED_LABEL, 0, labels).tolist())
    shown = [
        piece if label == IGNORED_LABEL else f"{piece}({truth})"
        for piece, label, truth in zip(pieces, labels, truths, strict=True)
    ]
    kinds = {IS_NEXT: "true", IS_RANDOM: "untrue", IGNORED_LABEL: "no pair"}
    return f"{kinds[int(row['next_sentence_label'])]}: {' '.join(shown)}"
