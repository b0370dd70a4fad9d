"""Turn rows of token ids into one padded, masked batch.

[{"input_ids": [2, 7, 8, 3]}, {"input_ids": [2, 9, 3]}]
->  input_ids [[2, 4, 8, 3], [2, 4, 3, 0]], labels [[-100, 7, -100, -100], [-100, 9, -100, -100]],
    attention_mask [[1, 1, 1, 1], [1, 1, 1, 0]]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase

from hfbert.data.masking import IGNORED_LABEL, MaskingOptions, content_keys, mask_tokens
from hfbert.data.words import NO_WORD, find_continuations, read_word_ids, word_ids_from_pieces

# B rows, S positions, V vocabulary
OWN_COLUMNS = ("attention_mask", "token_type_ids", "special_tokens_mask", "word_ids")  # one integer a token
INTEGER_COLUMNS = ("next_sentence_label", "sample_id")  # one integer a row


@dataclass(eq=False)
class DataCollatorForPreTraining:
    """Pad rows to a batch and mask it for BERT's pretraining (Devlin et al., 2019, section 3.1).

    Rows are mappings with `input_ids` and, if wanted, `attention_mask`, `token_type_ids`,
    `special_tokens_mask`, `word_ids`, `next_sentence_label`, `sample_id` and any other columns; or bare
    sequences of ids. The batch has `input_ids`, `attention_mask` and `labels` (-100 where nothing is
    predicted), all (B, S) int64, and every other column of the rows except `special_tokens_mask` and
    `word_ids`, which are used up, and `labels`, which are made here: numbers stacked, sequences padded with
    0 (with -100 if the name begins with `label`), number types kept (Python floats become float32), and
    anything else as a list. A special token, [UNK] and added ones included, is never chosen and never put
    in the place of another token.

    Masks are a function of (seed, epoch, sample id) and of nothing else: any number of workers, batch size,
    padding and order gives the same. A row without `sample_id` is known by its ids instead. In a
    `DataLoader`:

        collator = DataCollatorForPreTraining(tokenizer, seed=42)
        loader = DataLoader(rows, batch_size=32, shuffle=True, collate_fn=collator, num_workers=2)
        for epoch in range(3):
            collator.set_epoch(epoch)  # new masks; workers get a copy, so no persistent_workers
            for batch in loader:
                loss = model(**batch).loss

    `Trainer` tells its data of the epoch, not its collator, and a callback does:

        class NewMasksEveryEpoch(TrainerCallback):
            def on_epoch_begin(self, args, state, control, **kwargs):
                collator.set_epoch(int(state.epoch))

        Trainer(model, args, collator, rows, callbacks=[NewMasksEveryEpoch()]).train()

    It also drops the columns that the model's `forward` does not name, `sample_id` and `word_ids` among them;
    `remove_unused_columns=False` in its arguments keeps them.

    `whole_word_mask` takes words from the rows' `word_ids` (None or -1: never masked), else from `##` pieces.
    Raises ValueError for a tokenizer without mask or padding token, rates that are no shares, an empty batch,
    rows without `input_ids` or with different columns, and whole words that cannot be told.
    """

    tokenizer: PreTrainedTokenizerBase
    mlm_probability: float = MaskingOptions.mlm_probability
    mask_replace_prob: float = MaskingOptions.mask_replace_prob
    random_replace_prob: float = MaskingOptions.random_replace_prob
    whole_word_mask: bool = MaskingOptions.whole_word_mask
    masked_span: Literal["word", "ngram", "geometric"] = MaskingOptions.masked_span
    pad_to_multiple_of: int | None = None
    seed: int = 0
    return_tensors: str = "pt"
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for kind in ("mask", "pad"):
            if getattr(self.tokenizer, f"{kind}_token_id") is None:
                raise ValueError(
                    f"the tokenizer has no {kind}_token: add one with "
                    f"tokenizer.add_special_tokens({{'{kind}_token': '[{kind.upper()}]'}})"
                )
        if self.pad_to_multiple_of is not None and self.pad_to_multiple_of < 1:
            raise ValueError(f"pad_to_multiple_of={self.pad_to_multiple_of}: give 1 or more, or None")
        _check_return_tensors(self.return_tensors)
        self._is_special = _find_special_ids(self.tokenizer)  # (V,)
        self._replacement_ids = _find_replacement_ids(self.tokenizer, self._is_special)
        self._continues = find_continuations(self.tokenizer) if self.whole_word_mask else None
        options = self._masking_options()
        if options.random_replace_prob > 0 and not len(self._replacement_ids):
            raise ValueError("the vocabulary has special tokens only: set random_replace_prob=0")

    def set_epoch(self, epoch: int) -> None:
        """Give every sample the masks of this epoch."""
        self.epoch = int(epoch)

    def __call__(self, rows: Sequence[Any], return_tensors: str | None = None) -> BatchEncoding:
        """Rows to a batch of torch tensors or, with "np", of numpy arrays."""
        return_tensors = return_tensors or self.return_tensors
        _check_return_tensors(return_tensors)
        columns = _collect_columns(rows)
        columns.pop("labels", None)
        ids = [_read_ids(value, number) for number, value in enumerate(columns.pop("input_ids"))]
        inside = self._find_inside(np.array([len(row) for row in ids]), self.pad_to_multiple_of or 1)
        input_ids = self._pad_ids(ids, inside)
        own = {name: _pad_own(name, columns.pop(name), inside) for name in OWN_COLUMNS if name in columns}
        batch = {name: self._collate(name, values, inside) for name, values in columns.items()}
        own.setdefault("attention_mask", inside.astype(np.int64))
        sample_ids = batch.get("sample_id", content_keys(input_ids, inside))
        batch["input_ids"], batch["labels"] = self._mask(input_ids, inside, own, np.asarray(sample_ids))
        batch |= {name: own[name] for name in ("attention_mask", "token_type_ids") if name in own}
        if return_tensors == "np":
            return BatchEncoding(batch)
        return BatchEncoding({n: v if isinstance(v, list) else torch.from_numpy(v) for n, v in batch.items()})

    def _find_inside(self, lengths: np.ndarray, multiple: int) -> np.ndarray:
        """False on padding: (B, S) bool, S the greatest length rounded up."""
        width = -(-int(lengths.max()) // multiple) * multiple
        places = np.arange(width)
        if self.tokenizer.padding_side == "left":
            places = places[::-1]
        return places < lengths[:, None]

    def _pad_ids(self, ids: list[np.ndarray], inside: np.ndarray) -> np.ndarray:
        input_ids = _pad(ids, self.tokenizer.pad_token_id, inside)
        size = len(self._is_special)
        if input_ids.size and not 0 <= input_ids.min() <= input_ids.max() < size:
            stray = input_ids[(input_ids < 0) | (input_ids >= size)][0]
            raise ValueError(
                f"token id {stray} is not in the tokenizer's vocabulary of {size}: "
                "give the tokenizer that the rows were made with"
            )
        return input_ids

    def _collate(self, name: str, values: list[Any], inside: np.ndarray) -> np.ndarray | list[Any]:
        """A column the masking does not need: stacked numbers, padded sequences, or the list as it is."""
        arrays = [_to_array(value) for value in values]
        if any(array.dtype.kind not in "biufc" for array in arrays):
            if name in INTEGER_COLUMNS:
                raise ValueError(f"column {name!r} must hold one integer a row, got {values[0]!r}")
            return values
        if len({array.ndim for array in arrays}) > 1:
            raise ValueError(f"column {name!r} mixes numbers and sequences: give every row the same kind")
        is_label = name.startswith("label")
        if name in INTEGER_COLUMNS or (is_label and all(array.dtype.kind in "biu" for array in arrays)):
            arrays = [array.astype(np.int64) for array in arrays]
        if arrays[0].ndim == 0:
            return np.stack(arrays)
        lengths = np.array([len(array) for array in arrays])
        if not np.array_equal(lengths, inside.sum(axis=1)):  # not one value a token: a width of its own
            inside = self._find_inside(lengths, 1)
        return _pad(arrays, IGNORED_LABEL if is_label else 0, inside)

    def _mask(
        self, input_ids: np.ndarray, inside: np.ndarray, own: dict[str, np.ndarray], sample_ids: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        is_special = ~inside | self._is_special[input_ids]
        if "special_tokens_mask" in own:
            is_special |= own["special_tokens_mask"] != 0
        return mask_tokens(
            input_ids,
            ~is_special & (own["attention_mask"] != 0),
            self._find_words(input_ids, is_special, own) if self.whole_word_mask else None,
            sample_ids,
            self._masking_options(),
            seed=self.seed,
            epoch=self.epoch,
            mask_token_id=self.tokenizer.mask_token_id,
            replacement_ids=self._replacement_ids,
        )

    def _find_words(
        self, input_ids: np.ndarray, is_special: np.ndarray, own: dict[str, np.ndarray]
    ) -> np.ndarray:
        if "word_ids" in own:
            return own["word_ids"]
        if self._continues is None:
            raise ValueError(
                "whole_word_mask=True needs words and this tokenizer's pieces do not tell them (no '##'): "
                "give every row word_ids, such as tokenizer(text).word_ids()"
            )
        return word_ids_from_pieces(input_ids, is_special, self._continues)

    def _masking_options(self) -> MaskingOptions:
        return MaskingOptions(
            mlm_probability=self.mlm_probability,
            mask_replace_prob=self.mask_replace_prob,
            random_replace_prob=self.random_replace_prob,
            whole_word_mask=self.whole_word_mask,
            masked_span=self.masked_span,
        )


def _check_return_tensors(return_tensors: str) -> None:
    if return_tensors not in ("pt", "np"):
        raise ValueError(
            f'return_tensors={return_tensors!r}: give "pt" for torch tensors or "np" for numpy arrays'
        )


def _find_special_ids(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Ids that are never predicted: (V,) bool."""
    special_ids = set(tokenizer.all_special_ids)
    # A token added with special_tokens=True and no name of its own is in no list of the tokenizer but this.
    special_ids |= {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    is_special = np.zeros(max(max(tokenizer.get_vocab().values()), *special_ids) + 1, dtype=bool)
    is_special[list(special_ids)] = True
    return is_special


def _find_replacement_ids(tokenizer: PreTrainedTokenizerBase, is_special: np.ndarray) -> np.ndarray:
    """Ids a random token is drawn from; numbers the vocabulary leaves out are none of them."""
    numbers = np.unique(np.fromiter(tokenizer.get_vocab().values(), dtype=np.int64))
    return numbers[~is_special[numbers]]


def _collect_columns(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Rows to columns, after a check that there are rows and all have the same columns."""
    if len(rows) == 0:
        raise ValueError("the batch has no rows: check the batch sampler and the length of the data set")
    named_rows = [row if isinstance(row, Mapping) else {"input_ids": row} for row in rows]
    names = named_rows[0].keys()
    for number, row in enumerate(named_rows):
        if "input_ids" not in row:
            raise ValueError(f"row {number} has no input_ids, only {sorted(row)}: tokenize the text first")
        if row.keys() != names:
            stray = sorted(row.keys() ^ names)
            raise ValueError(f"row {number} and row 0 differ in {stray}: give every row the same columns")
    return {name: [row[name] for row in named_rows] for name in names}


def _read_ids(value: Any, number: int) -> np.ndarray:
    array = _to_array(value)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"row {number}: input_ids must be one flat sequence of integers, got {type(value).__name__} of "
            f"shape {array.shape}: tokenize without return_tensors, or take one row of the encoding"
        )
    return array.astype(np.int64)


def _to_array(value: Any) -> np.ndarray:
    """Numbers to an array that keeps their type; of type object for what makes none, such as ragged lists."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # numpy has no bfloat16
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    try:
        array = np.asarray(value)
    except ValueError:
        return np.empty(0, dtype=object)
    if array.dtype == np.float64:  # read Python floats as torch does; numpy takes an empty list for floats
        return array.astype(np.float32 if array.size else np.int64)
    return array


def _pad_own(name: str, values: list[Any], inside: np.ndarray) -> np.ndarray:
    """A column that has one integer for each token: (B, S) int64."""
    arrays = [
        read_word_ids(value) if name == "word_ids" else np.asarray(value, dtype=np.int64) for value in values
    ]
    for number, (array, length) in enumerate(zip(arrays, inside.sum(axis=1), strict=True)):
        if array.shape != (length,):
            raise ValueError(
                f"row {number}: {name} has shape {array.shape} beside {length} input_ids: one value a token"
            )
    return _pad(arrays, NO_WORD if name == "word_ids" else 0, inside)


def _pad(arrays: list[np.ndarray], fill: int, inside: np.ndarray) -> np.ndarray:
    """(length, ...) of each row -> (B, S, ...), all rows in one assignment."""
    # An empty row says nothing of the type and could change it.
    values = np.concatenate([array for array in arrays if len(array)] or arrays)
    padded = np.full((*inside.shape, *values.shape[1:]), fill, dtype=values.dtype)
    padded[inside] = values
    return padded
