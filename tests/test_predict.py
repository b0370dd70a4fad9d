"""Predictions, against transformers' pipelines on stock models, each text alone, and weights set by hand."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertTokenizer,
    pipeline,
)

from hfbert import (
    HFBertConfig,
    HFBertForMultipleChoice,
    HFBertForPreTraining,
    HFBertForQuestionAnswering,
    HFBertForSequenceClassification,
    HFBertForTokenClassification,
)
from hfbert.predict import answer, classify, fill_mask, find_masks, load_predictor, next_sentence, tag

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefg",
    "##b",
    "##c",
    *"深度学习很热",
    "?",
    ".",
    "[",
    "]",
]
PIECES += ["sep", "mask"]
STRANGE = [
    *("", " ", "\x00", "\u200b\u200d", "💩💩💩", "👨‍👩‍👧", "שלום a", "\ud800", "a\ud800b", "[SEP] a [CLS]"),
    *("<b>a</b>", "深度学习 a b", "a" * 300, "a b c d " * 1024, "ＡＢＣ", "a\u2028b\nc\td"),
]


def save(folder: Path, model: Any) -> str:
    model.save_pretrained(folder)
    BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)}).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def shape(tiny_config: dict[str, Any]) -> dict[str, Any]:
    return tiny_config | {"vocab_size": len(PIECES), "initializer_range": 0.3}


@pytest.fixture
def pretrained(tmp_path: Path, shape: dict[str, Any]) -> str:
    return save(tmp_path / "pretrained", HFBertForPreTraining(HFBertConfig(**shape)))


def labelled(shape: dict[str, Any], *names: str, **more: Any) -> HFBertConfig:
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    return HFBertConfig(**shape, **labels, **more)


@pytest.mark.parametrize("text", ["a b [MASK] d", "深[MASK]学习", "[MASK]", "a [MASK]. c"])
def test_masks_are_filled_as_the_stock_pipeline_fills_them(pretrained: str, text: str) -> None:
    stock = pipeline("fill-mask", BertForMaskedLM.from_pretrained(pretrained), tokenizer=pretrained, top_k=9)
    (own,) = fill_mask(load_predictor("fill_mask", pretrained), [text], top_k=3)
    (mask,) = own["masks"]
    expected = [guess for guess in stock(text) if guess["token"] > 4][:3]
    assert [one["token"] for one in mask["candidates"]] == [PIECES[guess["token"]] for guess in expected]
    scores = [guess["score"] for guess in expected]
    assert [one["score"] for one in mask["candidates"]] == pytest.approx(scores, abs=1e-5)
    assert text[mask["start"] : mask["end"]] == "[MASK]" and not own["is_cut"]


def test_every_mask_of_a_text_has_its_own_candidates_in_order(pretrained: str) -> None:
    predictor = load_predictor("fill_mask", pretrained)
    (own,) = fill_mask(predictor, ["[MASK] a [MASK] b [MASK]"])
    ids = [2, 4, PIECES.index("a"), 4, PIECES.index("b"), 4, 3]
    logits = BertForMaskedLM.from_pretrained(pretrained)(torch.tensor([ids])).logits[0].softmax(-1)
    logits[:, :5] = 0
    best = [PIECES[int(logits[place].argmax())] for place in (1, 3, 5)]
    assert [mask["candidates"][0]["token"] for mask in own["masks"]] == best
    assert [mask["start"] for mask in own["masks"]] == [0, 9, 18]


def test_the_filled_text_keeps_every_other_character(pretrained: str) -> None:
    predictor = load_predictor("fill_mask", pretrained)
    text = "💩  Ünï [MASK]\t[SEP] [MASK]。"
    (own,) = fill_mask(predictor, [text])
    first, second = (mask["candidates"][0]["token"] for mask in own["masks"])
    start = "💩  Ünï" if first.startswith("##") else "💩  Ünï "
    middle = "\t[SEP]" if second.startswith("##") else "\t[SEP] "
    assert own["filled"] == start + first.removeprefix("##") + middle + second.removeprefix("##") + "。"


def test_every_word_can_be_a_candidate_and_nothing_else(tmp_path: Path, shape: dict[str, Any]) -> None:
    padded = HFBertForPreTraining(HFBertConfig(**shape | {"vocab_size": len(PIECES) + 6}))
    (own,) = fill_mask(load_predictor("fill_mask", save(tmp_path, padded)), ["a [MASK]"], top_k=99)
    assert sorted(one["token"] for one in own["masks"][0]["candidates"]) == sorted(PIECES[5:])


def test_no_candidates_at_all_is_refused(pretrained: str) -> None:
    with pytest.raises(ValueError, match="top_k=0 must be 1 or more"):
        fill_mask(load_predictor("fill_mask", pretrained), ["a [MASK]"], top_k=0)


def test_a_hundred_masks_and_a_long_text_are_read_in_windows(pretrained: str) -> None:
    predictor = load_predictor("fill_mask", pretrained)
    many, long = fill_mask(predictor, ["[MASK] " * 100, "a " * 500 + "[MASK] b"])
    assert len(many["masks"]) == 100 and many["is_cut"] and long["is_cut"]
    near = "a " * 20 + "[MASK] b"
    (short,) = fill_mask(predictor, [near])
    assert [one["token"] for one in long["masks"][0]["candidates"]] == [
        one["token"] for one in short["masks"][0]["candidates"]
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "put [MASK] for a word"),
        ("   ", "put [MASK] for a word"),
        ("no mask", "put [MASK] for a word"),
        ("a [mask] b", "write it as [MASK]"),
        ("a <mask> b", "write it as [MASK]"),
        ("深度【MASK】", "write it as [MASK]"),
    ],
)
def test_a_text_without_a_mask_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:
        find_masks(text, "[MASK]")
    assert hint in str(caught.value)


def test_the_next_sentence_is_as_likely_as_stock_says(pretrained: str) -> None:
    pairs = [("a b", "c d e"), ("深度学习", "a"), ("", "a b c")]  # stock takes an empty second text for none
    stock = BertForNextSentencePrediction.from_pretrained(pretrained)
    tokenizer = BertTokenizer.from_pretrained(pretrained)
    for pair, own in zip(
        pairs, next_sentence(load_predictor("next_sentence", pretrained), pairs), strict=True
    ):
        expected = stock(**tokenizer(*pair, return_tensors="pt")).logits.softmax(-1)[0, 0]
        assert own["is_next"] == pytest.approx(expected.item(), abs=1e-5) and not own["is_cut"]


def test_of_a_long_pair_what_stands_round_the_border_is_read(pretrained: str) -> None:
    predictor = load_predictor("next_sentence", pretrained)
    long = ("g " * 50 + "a b c d e f g a b c", "b c d e f g a b c d e" + " g" * 50)
    short = ("a b c d e f g a b c", "b c d e f g a b c d e")  # 21 tokens, all that 24 positions have room for
    cut, whole = next_sentence(predictor, [long, short])
    assert cut["is_cut"] and not whole["is_cut"]
    assert cut["is_next"] == pytest.approx(whole["is_next"], abs=1e-5)


@pytest.mark.parametrize("text", ["a b c", "深度学习", ("a b", "c?"), "a " * 100])
def test_classes_are_those_of_the_stock_pipeline(tmp_path: Path, shape: dict[str, Any], text: Any) -> None:
    model = HFBertForSequenceClassification(labelled(shape, "差", "好", "一般"))
    folder = save(tmp_path, model)
    stock_model = BertForSequenceClassification.from_pretrained(folder)
    stock = pipeline("text-classification", stock_model, tokenizer=folder, top_k=None)
    given = {"text": text[0], "text_pair": text[1]} if isinstance(text, tuple) else text
    expected = stock(given, truncation=True, max_length=24)
    expected = expected if isinstance(expected[0], dict) else expected[0]  # one text gives a list in a list
    predictor = load_predictor("classify", folder)
    (own,) = classify(predictor, [text])
    assert [one["label"] for one in own] == [one["label"] for one in expected]
    assert [one["score"] for one in own] == pytest.approx([one["score"] for one in expected], abs=1e-5)
    assert classify(predictor, [text], top_k=1) == [own[:1]]


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_scores_are_numbers_and_several_labels_are_judged_one_by_one(
    tmp_path: Path, shape: dict[str, Any], kind: str
) -> None:
    names = ("score",) if kind == "regression" else ("茶", "水")
    model = HFBertForSequenceClassification(labelled(shape, *names, problem_type=kind))
    predictor = load_predictor("classify", save(tmp_path, model))
    logits = model.eval()(torch.tensor([[2, PIECES.index("a"), 3]])).logits[0]
    expected = logits if kind == "regression" else logits.sigmoid()
    own = {one["label"]: one["score"] for one in classify(predictor, ["a"])[0]}
    assert own == pytest.approx(dict(zip(names, expected.tolist(), strict=True)), abs=1e-5)


TAGS = ("O", "B-PER", "I-PER", "B-地", "I-地")


def tagger_by_piece(folder: Path, shape: dict[str, Any], tags: dict[str, str], names: Any = TAGS) -> str:
    """A tagger whose answer is a function of the piece alone: its layers pass the embeddings on."""
    wide = {"hidden_size": 64, "intermediate_size": 8, "hidden_act": "relu", "num_attention_heads": 1}
    model = HFBertForTokenClassification(labelled(shape | wide, *names))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith("LayerNorm.weight"):
                parameter.zero_()
        for number, piece in enumerate(PIECES):
            model.bert.embeddings.word_embeddings.weight[number, number] = 1
            model.classifier.weight[names.index(tags.get(piece, "O")), number] = 1
    return save(folder, model)


@pytest.mark.parametrize("text", ["a b c d", "b b a b", "深b学 c", "dbc bc", "a.b? c", "习 b  c", "d"])
def test_entities_are_those_of_the_stock_pipeline(tmp_path: Path, shape: dict[str, Any], text: str) -> None:
    tags = {"b": "B-PER", "c": "I-PER", "学": "B-地", "习": "I-地"}
    folder = tagger_by_piece(tmp_path, shape, tags)
    stock_model = BertForTokenClassification.from_pretrained(folder)
    stock = pipeline("token-classification", stock_model, tokenizer=folder, aggregation_strategy="first")
    (own,) = tag(load_predictor("tag", folder), [text])
    expected = [(one["entity_group"], one["start"], one["end"]) for one in stock(text)]
    assert [(one["type"], one["start"], one["end"]) for one in own] == expected
    assert all(one["text"] == text[one["start"] : one["end"]] for one in own)


def test_neighbours_stay_two_pieces_are_joined_and_chinese_has_no_spaces(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    folder = tagger_by_piece(tmp_path, shape, {"b": "B-PER", "c": "I-PER", "深": "B-地", "度": "I-地"})
    texts = ["b b c", "bbcb c", "a深度深学", "c度"]
    found = tag(load_predictor("tag", folder), texts)
    assert [[one["text"] for one in own] for own in found] == [
        ["b", "b c"],
        ["bbcb c"],  # the word bbcb is b ##b ##c ##b: its first piece speaks for it
        ["深度", "深"],
        ["c", "度"],  # an I- without its B- starts an entity of its own
    ]


@pytest.mark.parametrize(
    ("names", "tags", "expected"),
    [
        (("O", "PER"), {"b": "PER", "c": "PER"}, ["b c"]),
        (("O", "B-X", "E-X", "S-X"), {"b": "B-X", "c": "E-X", "d": "S-X"}, ["b c", "d"]),
    ],
)
def test_models_with_other_schemes_are_understood(
    tmp_path: Path, shape: dict[str, Any], names: Any, tags: dict[str, str], expected: list[str]
) -> None:
    folder = tagger_by_piece(tmp_path, shape, tags, names)
    (own,) = tag(load_predictor("tag", folder), ["a b c a d"])
    assert [one["text"] for one in own][: len(expected)] == [*expected, "d"][: len(expected)]


def test_a_long_text_is_tagged_from_end_to_end(tmp_path: Path, shape: dict[str, Any]) -> None:
    folder = tagger_by_piece(tmp_path, shape, {"b": "B-PER"})
    text = "a b " * 300
    (own,) = tag(load_predictor("tag", folder), [text])
    assert [one["start"] for one in own] == list(range(2, len(text), 4))


def test_answers_are_the_best_stretch_of_one_window_by_brute_force(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    model = HFBertForQuestionAnswering(HFBertConfig(**shape)).eval()
    predictor = load_predictor("answer", save(tmp_path, model))
    context = "abc d 深度学习 e f"
    (own,) = answer(predictor, [("a?", context)], n_best=100)
    ids = [2, PIECES.index("a"), PIECES.index("?"), 3]
    words = ["abc", "d", *"深度学习", "e", "f"]
    tokens = ["a", "##b", "##c", *words[1:]]
    ids += [PIECES.index(token) for token in tokens] + [3]
    outputs = model(torch.tensor([ids]), token_type_ids=torch.tensor([[0] * 4 + [1] * (len(tokens) + 1)]))
    starts, ends = outputs.start_logits[0, 4:-1], outputs.end_logits[0, 4:-1]
    pairs = [(i, j) for i in range(len(tokens)) for j in range(i, len(tokens))]
    best = max(pairs, key=lambda pair: float(starts[pair[0]] + ends[pair[1]]))
    offsets = [(0, 1), (1, 2), (2, 3), (4, 5), (6, 7), (7, 8), (8, 9), (9, 10), (11, 12), (13, 14)]
    assert (own["start"], own["end"]) == (offsets[best[0]][0], offsets[best[1]][1])
    assert own["text"] == context[own["start"] : own["end"]]
    null = float(outputs.start_logits[0, 0] + outputs.end_logits[0, 0])
    assert own["no_answer_score"] == pytest.approx(null - float(starts[best[0]] + ends[best[1]]), abs=1e-4)
    assert sum(one["score"] for one in own["n_best"]) == pytest.approx(1)
    (silent,) = answer(predictor, [("a?", context)], null_threshold=-1e9)
    assert silent["text"] == "" and silent["n_best"]


@pytest.fixture
def everything(tmp_path: Path, shape: dict[str, Any]) -> dict[str, str]:
    shape = shape | {"max_position_embeddings": 128}  # the long texts take a few windows, not hundreds
    pretrained = save(tmp_path / "pretrained", HFBertForPreTraining(HFBertConfig(**shape)))
    heads = {
        "classify": HFBertForSequenceClassification(labelled(shape, "a", "b")),
        "tag": HFBertForTokenClassification(labelled(shape, *TAGS)),
        "answer": HFBertForQuestionAnswering(HFBertConfig(**shape)),
    }
    folders = {task: save(tmp_path / task, model) for task, model in heads.items()}
    return folders | {"fill_mask": pretrained, "next_sentence": pretrained}


def ask(task: str, folder: str, texts: list[str], batch_size: int) -> list[Any]:
    predictor = load_predictor(task, folder, batch_size)
    if task == "fill_mask":
        return fill_mask(predictor, [f"{text} [MASK]" for text in texts])
    if task == "next_sentence":
        return next_sentence(predictor, [(text, "a b") for text in texts])
    if task == "classify":
        return classify(predictor, texts)
    if task == "tag":
        return tag(predictor, texts)
    return answer(predictor, [(text, texts[-1 - number]) for number, text in enumerate(texts)])


TASKS = ["fill_mask", "next_sentence", "classify", "tag", "answer"]


@pytest.mark.parametrize("task", TASKS)
def test_any_text_is_answered_the_same_alone_in_a_batch_and_twice(
    everything: dict[str, str], task: str
) -> None:
    together = ask(task, everything[task], STRANGE, 8)
    again = ask(task, everything[task], STRANGE, 8)
    alone = ask(task, everything[task], STRANGE, 1)
    assert together == again and len(together) == len(STRANGE)
    assert_close(together, alone)


def assert_close(one: Any, other: Any) -> None:
    if isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_close(left, right)
    else:
        assert one == other


@pytest.mark.parametrize("task", ["tag", "answer"])
def test_spans_of_random_text_are_exact(everything: dict[str, str], task: str) -> None:
    draw = random.Random(0)
    alphabet = [
        *"abcdefg 深度学习.?",
        "💩",
        "\u200d",
        "\u0301",
        "\ud83d",
        "\x00",
        "א",
        "[SEP]",
        "İ",
        "ﬁ",
        "ß",
    ]
    texts = ["".join(draw.choice(alphabet) for _ in range(draw.randint(0, 60))) for _ in range(200)]
    for text, found in zip(texts, ask(task, everything[task], texts, 32), strict=True):
        if task == "tag":
            assert all(one["text"] == text[one["start"] : one["end"]] != "" for one in found)
    if task == "answer":
        pairs = [("a?", text) for text in texts]
        for text, found in zip(texts, answer(load_predictor(task, everything[task]), pairs), strict=True):
            assert all(one["text"] == text[one["start"] : one["end"]] for one in found["n_best"])


@pytest.mark.parametrize("task", ["classify", "tag", "answer"])
def test_a_model_without_the_head_is_refused_in_one_line(pretrained: str, task: str) -> None:
    with pytest.raises(ValueError, match=f"has no trained head for {task}") as caught:
        load_predictor(task, pretrained)
    assert "\n" not in str(caught.value)


def test_one_classifier_is_not_taken_for_another(tmp_path: Path, shape: dict[str, Any]) -> None:
    for class_ in (HFBertForSequenceClassification, BertForSequenceClassification):
        folder = save(tmp_path / class_.__name__, class_(labelled(shape, *TAGS)))
        with pytest.raises(ValueError, match=rf"no trained head for tag \(it is {class_.__name__}") as caught:
            load_predictor("tag", folder)
        assert "\n" not in str(caught.value)
    one_label = HFBertForMultipleChoice(labelled(shape, "a"))
    with pytest.raises(ValueError, match=r"no trained head for classify \(it is HFBertForMultipleChoice"):
        load_predictor("classify", save(tmp_path / "choice", one_label))


def test_what_cannot_be_loaded_is_refused_in_one_line(tmp_path: Path, pretrained: str) -> None:
    for arguments in (("tag", str(tmp_path / "none")), ("sing", pretrained), ("tag", pretrained, 0)):
        with pytest.raises(ValueError) as caught:
            load_predictor(*arguments)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
