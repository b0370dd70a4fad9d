"""Turn the tags of any scheme into IOB2, where B- starts an entity and I- goes on with it.

["I-PER", "I-PER", "B-PER", "O"] (IOB1), ["B-PER", "E-PER", "S-PER", "O"] (IOBES)
    ->  ["B-PER", "I-PER", "B-PER", "O"]
"""

import re
from collections.abc import Iterable, Sequence

OUTSIDE = "O"
# What each prefix of BMES, BIOES and BILOU says in IOB2.
_STARTS = {"B": "B", "S": "B", "U": "B", "I": "I", "M": "I", "E": "I", "L": "I"}
_TAG = re.compile(r"([BIESMLU])[-_](.+)", re.DOTALL)


def split_tag(tag: str) -> tuple[str, str]:
    """("B", "PER") of "B-PER"; ("", "OBJ") of a tag without prefix; ("O", "") of "O"."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    found = _TAG.fullmatch(tag)
    return (found[1], found[2]) if found else ("", tag)


def looks_like_tag(text: str) -> bool:
    """Whether a cell is "O" or has one of the usual prefixes."""
    return text == OUTSIDE or _TAG.fullmatch(text) is not None


def detect_scheme(sequences: Iterable[Sequence[str]]) -> str:
    """IOB1, IOB2, IOBES, BMES, BILOU, or "plain" for tags without prefix.

    In IOB1 (Ramshaw and Marcus 1995) an entity starts with I-, and with B- only right after one of its type.
    """
    sequences = list(sequences)
    prefixes = {split_tag(tag)[0] for tags in sequences for tag in tags} - {OUTSIDE}
    if "" in prefixes:
        return "plain"
    if "M" in prefixes:
        return "BMES"
    if prefixes & {"L", "U"}:
        return "BILOU"
    if prefixes & {"E", "S"}:
        return "IOBES"
    pairs = [pair for tags in sequences for pair in zip([OUTSIDE, *tags], tags, strict=False)]
    starts = {split_tag(tag)[0] for before, tag in pairs if tag != OUTSIDE and not _goes_on(before, tag)}
    return "IOB1" if starts == {"I"} else "IOB2"


def to_iob2(tags: Sequence[str], scheme: str) -> list[str]:
    """Tags of a scheme that `detect_scheme` knows; each run of one plain tag is one entity."""
    if scheme == "plain":
        tags = [tag if tag == OUTSIDE else f"I-{tag}" for tag in tags]
    parts = [split_tag(tag) for tag in tags]
    return repair([OUTSIDE if prefix == OUTSIDE else f"{_STARTS[prefix]}-{kind}" for prefix, kind in parts])


def repair(tags: Sequence[str]) -> list[str]:
    """IOB2 in which no I- stands without something of its type before it: that one starts an entity."""
    fixed: list[str] = []
    for tag in tags:
        before = fixed[-1] if fixed else OUTSIDE
        prefix, kind = split_tag(tag)
        fixed.append(f"B-{kind}" if prefix == "I" and not _goes_on(before, tag) else tag)
    return fixed


def label_names(sequences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """O, then B- and I- of every type, sorted; both, even where a type has but one of them."""
    kinds = sorted({split_tag(tag)[1] for tags in sequences for tag in tags} - {""})
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in ("B", "I")))


def _goes_on(before: str, tag: str) -> bool:
    return before != OUTSIDE and split_tag(before)[1] == split_tag(tag)[1]
