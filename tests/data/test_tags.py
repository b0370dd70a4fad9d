"""Schemes of tags, against seqeval's entities."""

import random

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB1, IOB2, IOBES, Entities

from hfbert.data.tags import detect_scheme, label_names, repair, split_tag, to_iob2

SCHEMES = {"IOB2": IOB2, "IOB1": IOB1, "IOBES": IOBES}
Span = tuple[str, int, int]


def draw_spans(draw: random.Random, length: int) -> list[Span]:
    """Entities that do not overlap, some of them neighbours of one type: (type, first, last)."""
    spans, place = [], 0
    while place < length:
        size = draw.randint(1, 4)
        if draw.random() < 0.6:
            spans.append(
                (draw.choice(["PER", "creative-work", "地名"]), place, min(place + size, length) - 1)
            )
        place += size
    return spans


def write(spans: list[Span], length: int, scheme: str) -> list[str]:
    """Spans in a scheme, straight from its definition."""
    tags = ["O"] * length
    for kind, first, last in spans:
        for place in range(first, last + 1):
            prefix = "B" if place == first else "I"
            if scheme in ("IOBES", "BILOU", "BMES"):
                end, single = {"IOBES": "ES", "BILOU": "LU", "BMES": "ES"}[scheme]
                inside = "M" if scheme == "BMES" else "I"
                is_first, is_last = place == first, place == last
                prefix = single if is_first and is_last else "B" if is_first else end if is_last else inside
            if scheme == "IOB1":
                follows = any(one == kind and stop == first - 1 for one, _, stop in spans)
                prefix = "B" if place == first and follows else "I"
            tags[place] = f"{prefix}-{kind}"
    return tags


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES", "BILOU", "BMES"])
def test_a_scheme_is_told_and_its_entities_survive(scheme: str) -> None:
    draw = random.Random(scheme)
    drawn = [draw_spans(draw, 12) for _ in range(200)]
    sequences = [write(spans, 12, scheme) for spans in drawn]
    assert detect_scheme(sequences) == scheme
    for spans, tags in zip(drawn, sequences, strict=True):
        converted = to_iob2(tags, scheme)
        assert converted == write(spans, 12, "IOB2")
        if scheme in SCHEMES:  # what seqeval reads in the one it reads in the other
            theirs = [entity.to_tuple()[1:] for entity in Entities([tags], SCHEMES[scheme]).entities[0]]
            ours = [entity.to_tuple()[1:] for entity in Entities([converted], IOB2).entities[0]]
            assert ours == theirs


def test_tags_without_prefix_are_entities_run_by_run() -> None:
    tags = ["OBJ", "OBJ", "O", "人", "OBJ"]
    assert detect_scheme([tags]) == "plain"
    assert to_iob2(tags, "plain") == ["B-OBJ", "I-OBJ", "O", "B-人", "B-OBJ"]


def test_a_stray_inside_tag_does_not_make_another_scheme() -> None:
    assert detect_scheme([["B-PER", "O"], ["O", "I-PER"]]) == "IOB2"
    assert to_iob2(["O", "I-PER"], "IOB2") == ["O", "B-PER"]


@pytest.mark.parametrize("tags", [[], ["O", "O"]])
def test_nothing_but_outside_is_valid_iob2(tags: list[str]) -> None:
    assert detect_scheme([tags]) == "IOB2"
    assert to_iob2(tags, "IOB2") == tags
    assert label_names([tags]) == ("O",)


def test_repaired_tags_are_valid_and_valid_ones_stay() -> None:
    draw = random.Random(0)
    for _ in range(500):
        tags = [draw.choice(["O", "B-A", "I-A", "B-B", "I-B"]) for _ in range(9)]
        fixed = repair(tags)
        # seqeval's lenient reading of the broken tags is the strict reading of the repaired ones
        assert get_entities(tags) == get_entities(fixed)
        assert [e.to_tuple()[1:] for e in Entities([fixed], IOB2).entities[0]] == [
            (kind, first, last + 1) for kind, first, last in get_entities(tags)
        ]
        assert repair(fixed) == fixed


def test_neighbours_of_one_type_stay_two() -> None:
    assert repair(["B-PER", "B-PER", "I-PER"]) == ["B-PER", "B-PER", "I-PER"]


def test_names_hold_both_prefixes_of_every_type() -> None:
    assert label_names([["I-PER", "O"], ["B-地名"]]) == ("O", "B-PER", "I-PER", "B-地名", "I-地名")


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        ("O", ("O", "")),
        ("B-creative-work", ("B", "creative-work")),
        ("S_组织", ("S", "组织")),
        ("OBJ", ("", "OBJ")),
    ],
)
def test_a_tag_is_split_at_its_first_mark(tag: str, parts: tuple[str, str]) -> None:
    assert split_tag(tag) == parts
