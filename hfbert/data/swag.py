"""Turn a context and four endings into four sequences of token ids, of which one goes on rightly.

{"sent1": "He opens the door.", "sent2": "He", "ending0": "walks in.", ... "ending3": "is red.", "label": 0}
    ->  {"input_ids": four times [CLS] he opens the door . [SEP] he ... [SEP], "labels": 0}
"""

from typing import Any

from transformers import PreTrainedTokenizerBase

from hfbert.data.classification import is_missing, make_sequence
from hfbert.data.tables import Table
from hfbert.data.tokenizer import encode_plain

NUM_ENDINGS = 4
ENDINGS = tuple(f"ending{number}" for number in range(NUM_ENDINGS))
TEXT_COLUMNS = ("sent1", "sent2", *ENDINGS)


def make_choices(
    table: Table, tokenizer: PreTrainedTokenizerBase, max_length: int, has_labels: bool = True
) -> list[dict[str, Any]]:
    """Features of SWAG's columns (Zellers et al. 2018): `input_ids` and `token_type_ids` of four choices.

    The first segment is `sent1`; the second, `sent2` and an ending. A longer one is cut at its end.
    ValueError names the row for a missing column, an empty ending, or a label that is not 0 to 3.
    """
    for column in TEXT_COLUMNS + ("label",) * has_labels:
        table.require(column, "rename the columns to sent1, sent2, ending0 to ending3 and label")
    rows = [_read_row(table, number) for number in range(len(table))]
    contexts = encode_plain([context for context, _ in rows], tokenizer)
    endings = encode_plain([ending for _, endings in rows for ending in endings], tokenizer)
    features: list[dict[str, Any]] = []
    for number, context in enumerate(contexts):
        own = endings[NUM_ENDINGS * number : NUM_ENDINGS * (number + 1)]
        choices = [make_sequence(context, ending, tokenizer, max_length) for ending in own]
        row = {name: [choice[name] for choice in choices] for name in ("input_ids", "token_type_ids")}
        features.append(row | ({"labels": _read_label(table, number)} if has_labels else {}))
    return features


def is_labelled(table: Table) -> bool:
    """Whether any row says which ending is right."""
    return any(not is_missing(row.get("label")) for row in table.rows)


def _read_row(table: Table, number: int) -> tuple[str, list[str]]:
    texts = {column: str(table.rows[number].get(column) or "") for column in TEXT_COLUMNS}
    empty = next((column for column in ENDINGS if not texts[column].strip()), None)
    if empty is not None:
        raise ValueError(f"{table.place(number)}: {empty!r} is empty; fill it or delete the row")
    # Pieces do not depend on the space between the two, and Chinese has none.
    return texts["sent1"], [f"{texts['sent2']} {texts[ending]}".strip() for ending in ENDINGS]


def _read_label(table: Table, number: int) -> int:
    label = str(table.rows[number].get("label"))
    if label not in ("0", "1", "2", "3"):
        raise ValueError(f"{table.place(number)}: label {label!r} is not 0, 1, 2 or 3")
    return int(label)
