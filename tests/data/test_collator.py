"""The collator: the stock one as peer for keys and shapes, hand-worked batches, invariants."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import (
    BatchEncoding,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hfbert.data.collator import DataCollatorForPreTraining

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the cat sat on a mat un ##believ ##able ! 深 度 学 习 模 型"
PIECES = [*SPECIAL, *WORDS.split()]
TEXTS = [
    "the cat sat on a mat!",
    "unbelievable!",
    "深度学习模型",
    "the 深度 cat",
    "a",
    "the dog sat on the mat",
    "on a mat",
]
PAD, UNK, CLS, SEP, MASK = range(5)
ALL_MASK = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}


@pytest.fixture
def tokenizer():
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


@pytest.fixture
def rows(tokenizer):
    return [dict(tokenizer(text), sample_id=number) for number, text in enumerate(TEXTS * 5)]


def make_plain_tokenizer(specials):
    """A word-level tokenizer with special tokens of any spelling."""
    words = [*specials.values(), "<unk>", *["the", "cat", "sat", "on", "a", "mat"]]
    model = models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", **specials)


def masks_by_sample(batches):
    """sample id -> its own part of masked ids and labels, whatever the padding."""
    result = {}
    for batch in batches:
        for row, sample_id in enumerate(batch["sample_id"].tolist()):
            own = batch["attention_mask"][row] == 1
            result[sample_id] = (batch["input_ids"][row][own].tolist(), batch["labels"][row][own].tolist())
    return result


def test_a_batch_has_the_keys_shapes_and_types_of_the_stock_collator(tokenizer):
    encodings = [tokenizer(text, return_special_tokens_mask=True) for text in TEXTS]
    for return_tensors in ("pt", "np"):
        for multiple in (None, 8):
            stock = DataCollatorForLanguageModeling(
                tokenizer, pad_to_multiple_of=multiple, return_tensors=return_tensors
            )([BatchEncoding(dict(row)) for row in encodings])
            ours = DataCollatorForPreTraining(
                tokenizer, pad_to_multiple_of=multiple, return_tensors=return_tensors
            )(encodings)
            assert isinstance(ours, type(stock)) and set(ours) == set(stock)
            for key in stock:
                assert ours[key].shape == stock[key].shape and ours[key].dtype == stock[key].dtype
                assert type(ours[key]) is type(stock[key])
            for key in ("attention_mask", "token_type_ids"):
                assert (ours[key] == stock[key]).all()


def test_unmasking_gives_back_the_rows_padded(tokenizer, rows):
    batch = DataCollatorForPreTraining(tokenizer)(rows)
    restored = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
    for row, source in zip(restored.tolist(), rows, strict=True):
        ids = source["input_ids"]
        assert row == ids + [PAD] * (len(row) - len(ids))
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()


def test_all_columns_survive_with_their_types(tokenizer):
    rows = [
        {
            "input_ids": [CLS, *[6] * (length - 2), SEP],
            "token_type_ids": [0] * length,
            "next_sentence_label": length % 2,
            "weight": 0.5,
            "score": np.float64(0.25),
            "position": np.arange(length, dtype=np.int32),
            "share": torch.ones(length, dtype=torch.float16),
            "box": [[1, 2, 3, 4]] * length,
            "vector": [1.0, 2.0],
            "ragged": list(range(length - 1)),
            "is_short": length < 5,
            "flags": [True] * length,
            "small": np.uint8(7),
            "text": f"row {length}",
            "nothing": None,
            "nested": [[1], [2, 3]],
        }
        for length in (3, 5, 9)  # A07
    ]
    batch = DataCollatorForPreTraining(tokenizer, pad_to_multiple_of=8)(rows)
    assert set(batch) == {*rows[0], "attention_mask", "labels"}
    for key in ("input_ids", "token_type_ids", "attention_mask", "labels"):
        assert batch[key].shape == (3, 16) and batch[key].dtype == torch.int64
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 5, 9]
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
    assert batch["next_sentence_label"].tolist() == [1, 1, 1]
    shapes_and_types = {
        "next_sentence_label": ((3,), torch.int64),
        "weight": ((3,), torch.float32),
        "score": ((3,), torch.float64),
        "position": ((3, 16), torch.int32),
        "share": ((3, 16), torch.float16),
        "box": ((3, 16, 4), torch.int64),
        "vector": ((3, 2), torch.float32),
        "ragged": ((3, 8), torch.int64),
        "is_short": ((3,), torch.bool),
        "flags": ((3, 16), torch.bool),
        "small": ((3,), torch.uint8),
    }
    for key, (shape, dtype) in shapes_and_types.items():
        assert (tuple(batch[key].shape), batch[key].dtype) == (shape, dtype), key
    assert batch["position"][0].tolist() == [0, 1, 2] + [0] * 13
    assert batch["text"] == ["row 3", "row 5", "row 9"]
    assert batch["nothing"] == [None] * 3 and batch["nested"] == [[[1], [2, 3]]] * 3


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, partial(np.array, dtype=np.int32)])
@pytest.mark.parametrize("return_tensors", ["np", "pt"])
def test_ragged_token_labels_keep_their_name_and_are_padded_with_minus_100(tokenizer, kind, return_tensors):
    rows = [
        {"input_ids": kind([CLS, 6, 7, SEP]), "label": kind([-100, 1, 2, -100])},
        {"input_ids": kind([CLS, SEP]), "label": kind([-100, 5])},
    ]  # A14
    batch = DataCollatorForPreTraining(tokenizer, return_tensors=return_tensors)(rows)
    assert batch["label"].tolist() == [[-100, 1, 2, -100], [-100, 5, -100, -100]]
    assert "int64" in str(batch["label"].dtype)
    assert isinstance(batch["label"], np.ndarray if return_tensors == "np" else torch.Tensor)


def test_empty_labels_do_not_turn_the_others_into_floats(tokenizer):
    rows = [{"input_ids": [CLS, SEP], "label": []}, {"input_ids": [CLS, 6, SEP], "label": [1]}]
    label = DataCollatorForPreTraining(tokenizer)(rows)["label"]
    assert label.tolist() == [[-100], [1]] and label.dtype == torch.int64


def test_labels_of_the_rows_give_way_to_those_of_masked_lm(tokenizer):
    batch = DataCollatorForPreTraining(tokenizer)([{"input_ids": [CLS, 6, SEP], "labels": [9, 9, 9]}])
    assert batch["labels"].tolist() == [[-100, 6, -100]]


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_stands_on_the_side_of_the_tokenizer(tokenizer, side):
    tokenizer.padding_side = side
    rows = [
        {"input_ids": [CLS, 6, SEP], "label": [0, 1, 2]},
        {"input_ids": [CLS, 6, 7, 8, SEP], "label": [0] * 5},
    ]
    batch = DataCollatorForPreTraining(tokenizer, pad_to_multiple_of=4)(rows)
    stock = DataCollatorForLanguageModeling(tokenizer, pad_to_multiple_of=4, mlm=False)(
        [{"input_ids": row["input_ids"]} for row in rows]
    )
    assert (batch["attention_mask"] == stock["attention_mask"]).all()
    padding = [-100] * 5
    assert batch["label"][0].tolist() == ([0, 1, 2, *padding] if side == "right" else [*padding, 0, 1, 2])


def test_attention_mask_of_the_rows_is_kept_and_hidden_tokens_are_never_chosen(tokenizer):
    row = {"input_ids": [CLS, 6, 7, 8, 9, SEP], "attention_mask": [1, 1, 0, 0, 1, 1]}
    batch = DataCollatorForPreTraining(tokenizer, mlm_probability=1.0)([row])
    assert batch["attention_mask"].tolist() == [row["attention_mask"]]
    assert batch["labels"].tolist() == [[-100, 6, -100, -100, 9, -100]]


def test_no_special_token_is_ever_selected_or_predicted_whatever_their_spelling():
    specials = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>", "pad_token": "<pad>"}
    tokenizer = make_plain_tokenizer(specials)  # A10
    tokenizer.add_tokens([AddedToken("<entity>", special=True)], special_tokens=True)
    tokenizer.add_special_tokens({"extra_special_tokens": ["<other>"]})
    tokenizer.add_tokens(["kitten"])
    ids = tokenizer("<s> the kitten <entity> sat on <other> a mat unheard </s>")["input_ids"]
    words = tokenizer.convert_tokens_to_ids(["the", "cat", "sat", "on", "a", "mat", "kitten"])
    is_word = [number in words for number in ids]
    assert sum(is_word) == 6
    for given in ({}, {"special_tokens_mask": [0] * len(ids)}):
        for options in ({}, {"mask_replace_prob": 0.0, "random_replace_prob": 1.0}):
            rows = [{"input_ids": ids, "sample_id": number, **given} for number in range(500)]
            batch = DataCollatorForPreTraining(tokenizer, mlm_probability=0.5, **options)(rows)
            chosen = batch["labels"] != -100
            assert chosen.any(dim=0).tolist() == is_word
            assert set(batch["labels"][chosen].tolist()) <= set(words)
            assert set(batch["input_ids"][chosen].tolist()) <= {*words, tokenizer.mask_token_id}
    assert set(batch["input_ids"][chosen].tolist()) == set(words)


def test_special_tokens_mask_of_the_rows_is_respected_and_used_up(tokenizer):
    row = {"input_ids": [CLS, 6, 7, 8, SEP], "special_tokens_mask": [0, 1, 0, 1, 0]}
    batch = DataCollatorForPreTraining(tokenizer, mlm_probability=1.0)([row])
    assert batch["labels"].tolist() == [[-100, -100, 7, -100, -100]]
    assert "special_tokens_mask" not in batch


def test_one_token_is_chosen_in_each_of_50_draws_and_the_loss_is_finite(tokenizer):
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=len(PIECES),
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
        )
    )
    collator = DataCollatorForPreTraining(tokenizer)
    for epoch in range(50):  # A01
        collator.set_epoch(epoch)
        batch = collator([tokenizer("the cat sat on")])
        assert (batch["labels"] != -100).sum() == 1
        loss = model(**batch).loss
        loss.backward()
        assert torch.isfinite(loss)


def test_everything_chosen_becomes_the_mask_one_flag_away(tokenizer, rows):
    batch = DataCollatorForPreTraining(tokenizer, **ALL_MASK)(rows)
    assert (batch["input_ids"][batch["labels"] != -100] == MASK).all()


def test_whole_words_are_chosen_in_english_and_chinese_from_pieces(tokenizer, rows):
    collator = DataCollatorForPreTraining(tokenizer, whole_word_mask=True, mlm_probability=0.5, **ALL_MASK)
    seen = set()
    for epoch in range(30):
        collator.set_epoch(epoch)
        labels = collator(rows)["labels"]
        for row, text in zip(labels, TEXTS, strict=False):
            if text.startswith("unbelievable"):
                seen.add(tuple((row[1:5] != -100).tolist()))
            if text == "深度学习模型":
                assert (row != -100).sum() == 3  # six words of one character each
    word, no_word = (True, True, True), (False, False, False)
    assert seen == {(*word, False), (*no_word, True), (*word, True)}  # a share of 2 pieces of 4


def test_word_ids_of_the_rows_win_over_pieces(tokenizer):
    # Two Chinese words of two characters, as a segmenter tells them; the pieces alone would say four words.
    row = {"input_ids": [CLS, *tokenizer.convert_tokens_to_ids(list("深度学习")), SEP]}
    row["word_ids"] = [None, 0, 0, 1, 1, None]
    collator = DataCollatorForPreTraining(tokenizer, whole_word_mask=True, mlm_probability=0.5)
    seen = set()
    for epoch in range(30):
        collator.set_epoch(epoch)
        batch = collator([row, {"input_ids": [CLS, SEP], "word_ids": [None, None]}])
        assert "word_ids" not in batch
        seen.add(tuple((batch["labels"][0] != -100).tolist()))
    assert seen == {(False, True, True, False, False, False), (False, False, False, True, True, False)}


def test_whole_words_that_cannot_be_told_are_refused_with_what_to_pass():
    tokenizer = make_plain_tokenizer({"mask_token": "<mask>", "pad_token": "<pad>"})
    collator = DataCollatorForPreTraining(tokenizer, whole_word_mask=True)
    with pytest.raises(ValueError, match="give every row word_ids"):
        collator([{"input_ids": [4, 5]}])
    assert (collator([{"input_ids": [4, 5], "word_ids": [0, 0]}])["labels"] == torch.tensor([[4, 5]])).all()


@pytest.mark.parametrize("whole_word", [False, True])
def test_masks_are_the_same_for_any_workers_batch_size_padding_and_order(tokenizer, rows, whole_word):
    collator = DataCollatorForPreTraining(tokenizer, seed=3, whole_word_mask=whole_word)
    collator.set_epoch(2)
    expected = masks_by_sample([collator([row]) for row in rows])
    for num_workers in (0, 1, 2):
        for batch_size in (4, 8):
            loader = DataLoader(rows, batch_size, shuffle=True, collate_fn=collator, num_workers=num_workers)
            assert masks_by_sample(loader) == expected
    wide = DataCollatorForPreTraining(tokenizer, seed=3, whole_word_mask=whole_word, pad_to_multiple_of=64)
    wide.set_epoch(2)
    assert masks_by_sample([wide(rows[::-1])]) == expected
    tokenizer.padding_side = "left"
    assert masks_by_sample([wide(rows)]) == expected
    assert masks_by_sample([pickle.loads(pickle.dumps(collator))(rows)]) == expected


def test_masks_are_the_same_with_and_without_numpy_output(tokenizer, rows):
    collator = DataCollatorForPreTraining(tokenizer)
    assert masks_by_sample([collator(rows, return_tensors="np")]) == masks_by_sample([collator(rows)])


def test_rows_without_sample_id_are_known_by_their_ids(tokenizer):
    rows = [{"input_ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    collator = DataCollatorForPreTraining(tokenizer, mlm_probability=0.4)

    def own_labels(batch, row):
        return batch["labels"][row][batch["attention_mask"][row] == 1].tolist()

    together = collator(rows)
    for number, row in enumerate(rows):
        alone = collator([row])
        assert own_labels(alone, 0) == own_labels(together, number)
    twins = collator([rows[0], rows[0]])["labels"]
    assert (twins[0] == twins[1]).all()


def test_epoch_seed_and_sample_id_give_other_masks(tokenizer, rows):
    collator, other_seed = (
        DataCollatorForPreTraining(tokenizer),
        DataCollatorForPreTraining(tokenizer, seed=1),
    )
    first = masks_by_sample([collator(rows)])
    assert masks_by_sample([other_seed(rows)]) != first
    assert len({str(first[number]) for number in range(0, len(rows), len(TEXTS))}) > 1  # one text, five ids
    collator.set_epoch(1)
    assert masks_by_sample([collator(rows)]) != first
    collator.set_epoch(0)
    assert masks_by_sample([collator(rows)]) == first


def test_global_random_numbers_are_neither_read_nor_moved(tokenizer, rows):
    collator = DataCollatorForPreTraining(tokenizer)
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        results.append(masks_by_sample([collator(rows)]))
        assert torch.equal(before, torch.get_rng_state())
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, tuple])
def test_bare_sequences_of_ids_are_rows_too_as_in_the_stock_collator(tokenizer, kind):
    batch = DataCollatorForPreTraining(tokenizer)([kind([CLS, 6, SEP]), kind([CLS, 6, 7, 8, SEP])])
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["input_ids"].shape == (2, 5)


def test_rows_of_a_datasets_table_work_in_every_format(tokenizer):
    table = Dataset.from_dict({"input_ids": [[CLS, 6, SEP], [CLS, 6, 7, SEP]], "next_sentence_label": [0, 1]})
    expected = DataCollatorForPreTraining(tokenizer)(list(table))
    for form in ("torch", "numpy"):
        batch = DataCollatorForPreTraining(tokenizer)(list(table.with_format(form)))
        assert all(torch.equal(batch[key], expected[key]) for key in expected)


@pytest.mark.parametrize("remove_unused_columns", [True, False])
@pytest.mark.parametrize("model_class", [BertForMaskedLM, BertForPreTraining])
def test_it_is_a_drop_in_for_the_stock_collator_in_trainer(
    tokenizer, tmp_path, model_class, remove_unused_columns
):
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    table = Dataset.from_list(
        [
            dict(
                tokenizer(text, return_special_tokens_mask=True),
                sample_id=number,
                next_sentence_label=number % 2,
            )
            for number, text in enumerate(TEXTS * 2)
        ]
    )
    if model_class is BertForMaskedLM:
        table = table.remove_columns("next_sentence_label")
    collator = DataCollatorForPreTraining(tokenizer, seed=1)
    epochs = []

    class NewMasksEveryEpoch(TrainerCallback):
        def on_epoch_begin(self, args, state, control, **kwargs):
            collator.set_epoch(int(state.epoch))
            epochs.append(collator.epoch)

    arguments = TrainingArguments(
        output_dir=tmp_path,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=remove_unused_columns,
    )
    trainer = Trainer(
        model_class(config), arguments, collator, table, table, callbacks=[NewMasksEveryEpoch()]
    )
    assert np.isfinite(trainer.train().training_loss)
    assert np.isfinite(trainer.evaluate()["eval_loss"])
    assert epochs == [0, 1]


def refused(match, call):
    with pytest.raises(ValueError, match=match) as error:
        call()
    assert "\n" not in str(error.value)


def test_bad_batches_are_refused_in_one_line_with_the_remedy(tokenizer):
    collator = DataCollatorForPreTraining(tokenizer)
    good = {"input_ids": [CLS, 6, SEP]}
    refused("the batch has no rows", lambda: collator([]))
    refused("row 1 has no input_ids.*tokenize", lambda: collator([good, {"text": "a"}]))
    refused(r"row 1 and row 0 differ in \['label'\]", lambda: collator([good, {**good, "label": 1}]))
    refused(r"row 0: input_ids.*shape \(1, 3\)", lambda: collator([tokenizer("cat", return_tensors="np")]))
    refused("row 0: input_ids", lambda: collator([{"input_ids": "the cat"}]))
    refused("row 0: input_ids", lambda: collator([{"input_ids": [0.5]}]))
    refused("row 0: input_ids", lambda: collator([{"input_ids": None}]))
    refused("token id 99 is not in the tokenizer's vocabulary of 21", lambda: collator([[CLS, 99, SEP]]))
    refused("token id -1 is not", lambda: collator([[CLS, -1, SEP]]))
    for name in ("token_type_ids", "attention_mask", "special_tokens_mask", "word_ids"):
        refused(f"row 0: {name} has shape", lambda name=name: collator([{**good, name: [0, 0]}]))
    refused("'extra' mixes", lambda: collator([{**good, "extra": 1}, {**good, "extra": [1]}]))
    refused("'sample_id' must hold one integer", lambda: collator([{**good, "sample_id": "a"}]))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mlm_probability": 15}, "mlm_probability=15"),
        ({"mask_replace_prob": -0.1}, "mask_replace_prob=-0.1"),
        ({"random_replace_prob": 0.3}, "sum may be 1 at most"),
        ({"return_tensors": "tf"}, "return_tensors='tf'"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of=0"),
    ],
)
def test_bad_options_are_refused_in_one_line_naming_them(tokenizer, options, match):
    refused(match, lambda: DataCollatorForPreTraining(tokenizer, **options))


def test_return_tensors_of_a_call_is_checked_too(tokenizer):
    refused(
        "return_tensors='jax'",
        lambda: DataCollatorForPreTraining(tokenizer)([[CLS, SEP]], return_tensors="jax"),
    )


@pytest.mark.parametrize("missing", ["mask", "pad"])
def test_a_tokenizer_without_mask_or_padding_token_is_refused(missing):
    specials = {"mask_token": "<mask>", "pad_token": "<pad>"}
    del specials[f"{missing}_token"]
    refused(f"no {missing}_token", lambda: DataCollatorForPreTraining(make_plain_tokenizer(specials)))


def test_a_vocabulary_of_special_tokens_only_is_refused_for_random_tokens():
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(SPECIAL)})
    refused("special tokens only", lambda: DataCollatorForPreTraining(tokenizer))
    DataCollatorForPreTraining(tokenizer, **ALL_MASK)
