"""Turn documents of token ids into sentence pairs, planned anew for every epoch.

[[11, 12], [13], [14, 15]]  ->  [CLS] 11 12 13 [SEP] 14 15 [SEP], next_sentence_label 0
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from torch.utils.data import Dataset

from hfbert.data.masking import IGNORED_LABEL, counter_hash
from hfbert.data.pair_plan import IS_NEXT, IS_RANDOM, NUM_SPECIAL_TOKENS, PairOptions, find_text, make_plan
from hfbert.data.tokenized import TokenizedCorpus
from hfbert.data.words import NO_WORD


class SentencePairs(Dataset[dict[str, object]]):
    """Samples for masked LM and next sentence prediction (Devlin et al., 2019, section 3.1 and A.2).

    The sentences of a document are gathered until the target length is reached or the document ends; A is a
    random number of them from the front, B the rest (label 0) or text from another document (label 1), and
    then the rest is put back and opens the next sample. What is too long loses tokens from its longer side,
    each from the front or the back by a coin toss. Two things differ from the paper's data builder:

    * The coin is tossed whatever the sentences are like, and a chunk takes a second sentence whenever the
      document has one. There, a long first sentence always got a random B, so length told the label. A
      sentence with none left to pair it with becomes `[CLS] A [SEP]` for masked LM alone, with label -100.
    * A random B is as long as the true B would have been, to the nearest end of a sentence, so that its
      length says little of the label: its document is uniform among the others that have as many
      tokens (among all others if none has), its first sentence uniform among those with as many tokens from
      there on. There, a random B was whatever was left of a document, often much shorter than a true one.

    Every decision is a function of (seed, epoch, document number): workers, processes and order change
    nothing.

        pairs = SentencePairs(corpus, PairOptions(max_length=128), cls_token_id=2, sep_token_id=3, seed=0)
        for epoch in range(3):
            pairs.set_epoch(epoch)  # before the DataLoader is iterated: workers get a copy
            ...

    `documents` are the document numbers to use, all by default; random B's come from these too. Raises
    ValueError when they hold no text, do not exist, or are too few for a random B.
    """

    def __init__(
        self,
        corpus: TokenizedCorpus,
        options: PairOptions,
        cls_token_id: int,
        sep_token_id: int,
        seed: int,
        documents: np.ndarray | None = None,
    ) -> None:
        self.options = options
        self.cls_token_id = cls_token_id
        self.sep_token_id = sep_token_id
        self.seed = seed
        self._tokens = corpus.tokens
        self._word_starts = corpus.word_starts
        self._text = find_text(corpus, documents)
        num_documents = len(self._text.numbers)
        if num_documents == 0:
            raise ValueError("no document has any text: check the corpus and the share of held-out documents")
        if num_documents == 1 and options.nsp_probability < 1 and options.pair_objective == "nsp":
            raise ValueError(
                "next sentence prediction needs two documents or more, to take a random second text from "
                "another one, and there is one: separate documents by blank lines, or set pair_objective=sop"
            )
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Plan the samples of this epoch."""
        self._plan = make_plan(self._text, self.options, partial(counter_hash, self.seed, epoch))

    def __len__(self) -> int:
        """Samples in this epoch; the number differs a little from epoch to epoch."""
        return len(self._plan.label)

    def length(self, sample: int) -> int:
        """Positions of a sample of this epoch, special tokens included."""
        plan = self._plan
        num_second = int(plan.second_end[sample] - plan.second_start[sample])
        return int(plan.first_end[sample] - plan.first_start[sample]) + (num_second + 3 if num_second else 2)

    def __getitem__(self, sample: int) -> dict[str, object]:
        """`input_ids`, `token_type_ids`, `special_tokens_mask` (S,) int64; label and `sample_id` as int.

        Also `word_ids` (S,), -1 on special tokens, of a corpus that knows its words. Raises IndexError when
        there is no such sample in this epoch.
        """
        if not 0 <= sample < len(self):
            raise IndexError(f"sample {sample} of {len(self)}")
        plan = self._plan
        first = self._tokens[plan.first_start[sample] : plan.first_end[sample]]
        second = self._tokens[plan.second_start[sample] : plan.second_end[sample]]
        middle = len(first) + 1
        length = middle + 1 + (len(second) + 1 if len(second) else 0)
        separators = [middle, length - 1]
        input_ids = np.empty(length, dtype=np.int64)
        input_ids[0] = self.cls_token_id
        input_ids[1:middle] = first
        input_ids[middle + 1 : middle + 1 + len(second)] = second
        input_ids[separators] = self.sep_token_id
        token_type_ids = np.zeros(length, dtype=np.int64)
        token_type_ids[middle + 1 :] = 1
        special_tokens_mask = np.zeros(length, dtype=np.int64)
        special_tokens_mask[[0, *separators]] = 1
        label = int(plan.label[sample])
        if label == IS_RANDOM and self.options.pair_objective == "nsp":
            # What stands in many documents may be drawn where it would have come anyway.
            after = int(plan.first_end[sample])
            if np.array_equal(second, self._tokens[after : after + len(second)]):
                label = IS_NEXT
        row = {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "special_tokens_mask": special_tokens_mask,
            "next_sentence_label": label,
            "sample_id": int(sample),
        }
        if self._word_starts is None:
            return row
        starts = np.ones(length, dtype=bool)
        starts[2:middle] = self._word_starts[plan.first_start[sample] : plan.first_end[sample]][1:]
        starts[middle + 2 : -1] = self._word_starts[plan.second_start[sample] : plan.second_end[sample]][1:]
        return row | {"word_ids": np.where(special_tokens_mask == 1, NO_WORD, np.cumsum(starts))}


@dataclass(frozen=True, kw_only=True)
class PairStatistics:
    """What a run prints of its pairs; `str()` gives the line."""

    num_documents: int
    num_documents_with_pairs: int
    num_pairs: int
    num_random_pairs: int
    num_single_segments: int
    mean_length: float
    pair_objective: str = "nsp"

    @property
    def random_share(self) -> float:
        return self.num_random_pairs / self.num_pairs if self.num_pairs else 0.0

    def __str__(self) -> str:
        if self.pair_objective == "none":
            return (
                f"documents: {self.num_documents:,}, texts for masked LM alone: "
                f"{self.num_single_segments:,}, mean length: {self.mean_length:.1f}"
            )
        kind, untrue = ("next-sentence", "random") if self.pair_objective == "nsp" else ("order", "swapped")
        counts = (
            f"documents: {self.num_documents:,}, with >= 2 sentences: {self.num_documents_with_pairs:,}, "
            f"{kind} pairs: {self.num_pairs:,}"
        )
        if not self.num_pairs:
            return (
                f"warning: {counts}; only masked LM is trained. A blank line ends a document: "
                "keep the sentences of one document on lines without blank ones between them"
            )
        return (
            f"{counts} ({self.random_share:.1%} {untrue}), single sentences for masked LM only: "
            f"{self.num_single_segments:,}, mean length: {self.mean_length:.1f}"
        )


def pair_statistics(dataset: SentencePairs) -> PairStatistics:
    """Counts over this epoch's samples, and their mean length in positions."""
    text, plan = dataset._text, dataset._plan
    num_tokens = plan.first_end - plan.first_start + plan.second_end - plan.second_start
    is_pair = plan.label != IGNORED_LABEL
    return PairStatistics(
        num_documents=len(text.numbers),
        num_documents_with_pairs=int((text.last - text.first > 1).sum()),
        num_pairs=int(is_pair.sum()),
        num_random_pairs=int((plan.label == IS_RANDOM).sum()),
        num_single_segments=int((~is_pair).sum()),
        mean_length=float(np.mean(num_tokens + np.where(is_pair, NUM_SPECIAL_TOKENS, 2))),
        pair_objective=dataset.options.pair_objective,
    )
