"""Turn the files or the data set of a GLUE task (Wang et al. 2018) into tables with three columns.

RTE/dev.tsv: "0\\tTea is hot.\\tIt steams.\\tentailment"
    ->  {"text": "Tea is hot.", "pair": "It steams.", "label": "entailment"}
"""

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hfbert.data.tables import Table, read_dataset, read_table

HUB_NAME = "nyu-mll/glue"
DIAGNOSTIC = "ax"


@dataclass(frozen=True)
class GlueTask:
    """Names of a task: its folder, its labels in order (none: a score), its columns and its parts."""

    folder: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]  # text and, for pairs, second text in the data set; the label is "label"
    file_columns: tuple[str, ...]  # text, second text, label in the folder's files
    evaluations: tuple[str, ...] = ("",)  # what is added to "dev" and "validation"
    submissions: tuple[tuple[str, int], ...] = ()  # the server's file for each test part, and its rows


_PAIR = ("sentence1", "sentence2")
_OWN = ("text", "pair")
_ENTAILMENT = ("entailment", "not_entailment")
TASKS = {
    "cola": GlueTask(
        "CoLA",
        ("unacceptable", "acceptable"),
        ("sentence",),
        ("sentence", "label"),
        submissions=(("CoLA", 1063),),
    ),
    "sst2": GlueTask(
        "SST-2",
        ("negative", "positive"),
        ("sentence",),
        ("sentence", "label"),
        submissions=(("SST-2", 1821),),
    ),
    "mrpc": GlueTask(
        "MRPC",
        ("not_equivalent", "equivalent"),
        _PAIR,
        ("#1 String", "#2 String", "Quality"),
        submissions=(("MRPC", 1725),),
    ),
    "stsb": GlueTask("STS-B", (), _PAIR, (*_PAIR, "score"), submissions=(("STS-B", 1379),)),
    "qqp": GlueTask(
        "QQP",
        ("not_duplicate", "duplicate"),
        ("question1", "question2"),
        ("question1", "question2", "is_duplicate"),
        submissions=(("QQP", 390_965),),
    ),
    "mnli": GlueTask(
        "MNLI",
        ("entailment", "neutral", "contradiction"),
        ("premise", "hypothesis"),
        (*_PAIR, "gold_label"),
        ("_matched", "_mismatched"),
        (("MNLI-m", 9796), ("MNLI-mm", 9847)),
    ),
    "qnli": GlueTask(
        "QNLI",
        _ENTAILMENT,
        ("question", "sentence"),
        ("question", "sentence", "label"),
        submissions=(("QNLI", 5463),),
    ),
    "rte": GlueTask("RTE", _ENTAILMENT, _PAIR, (*_PAIR, "label"), submissions=(("RTE", 3000),)),
    "wnli": GlueTask("WNLI", _ENTAILMENT[::-1], _PAIR, (*_PAIR, "label"), submissions=(("WNLI", 146),)),
}
_COLA_COLUMNS = ["source", "label", "mark", "sentence"]  # its labelled files have no line of names
_DIAGNOSTIC_SIZE = 1104
# The server wants numbers for these; names of labels for the others, scores for STS-B.
_NUMBERED = ("cola", "sst2", "mrpc", "qqp", "wnli")


def read_glue(task_name: str, dataset_name: str | None) -> dict[str, Table]:
    """The parts of a task by name: "train", "validation" or "validation_matched", "test" ...

    From the official folder (of all tasks, or of this one), from a data set, or from the Hub. Rows have
    "text", "pair" for tasks on pairs, and "label" where it is known. MNLI brings the diagnostic set as
    "test_ax" where it is at hand. ValueError names what is missing.
    """
    task = TASKS[task_name]
    folder = _official_folder(task, dataset_name)
    if folder is not None:
        return _read_folder(task_name, folder)
    there = [other.folder for other in TASKS.values() if Path(dataset_name or "", other.folder).is_dir()]
    if dataset_name is not None and there:
        raise ValueError(
            f"--task_name {task_name}: {dataset_name} has {', '.join(there)} and no {task.folder}; "
            "name tasks it has"
        )
    if dataset_name is not None and not _is_all_of_glue(dataset_name):
        parts = read_dataset(dataset_name)
    else:
        parts = read_dataset(dataset_name or HUB_NAME, task_name)
    if task_name == "mnli" and (dataset_name is None or _is_all_of_glue(dataset_name)):
        parts |= {f"test_{DIAGNOSTIC}": read_dataset(dataset_name or HUB_NAME, DIAGNOSTIC)["test"]}
    return {name: rename_columns(task_name, part) for name, part in parts.items()}


def _is_all_of_glue(name: str) -> bool:
    return not Path(name).is_dir() and name.rpartition("/")[2].lower() == "glue"


def _official_folder(task: GlueTask, dataset_name: str | None) -> Path | None:
    if dataset_name is None:
        return None
    folder = Path(dataset_name).expanduser()
    places = (folder / task.folder, folder)
    files = ("train.tsv", "dev.tsv", "dev_matched.tsv", "msr_paraphrase_train.txt")
    return next((place for place in places if any((place / file).is_file() for file in files)), None)


def _read_folder(task_name: str, folder: Path) -> dict[str, Table]:
    task, parts = TASKS[task_name], {}
    names = {"train": "train.tsv"}
    for ending in task.evaluations:
        names |= {f"validation{ending}": f"dev{ending}.tsv", f"test{ending}": f"test{ending}.tsv"}
    for part, file in names.items():
        if (folder / file).is_file():
            is_headless = task_name == "cola" and part != "test"
            # The official file of QQP has a few broken lines; any other break is a mistake.
            drops = task_name == "qqp" and part == "train"
            parts[part] = read_table(folder / file, _COLA_COLUMNS if is_headless else None, drops)
    if task_name == "mrpc" and "train" not in parts:
        parts |= _read_original_mrpc(folder)
    diagnostic = folder.parent / "diagnostic" / "diagnostic.tsv"
    if task_name == "mnli" and diagnostic.is_file():
        parts[f"test_{DIAGNOSTIC}"] = read_table(diagnostic)
    return {part: rename_columns(task_name, table) for part, table in parts.items()}


def _read_original_mrpc(folder: Path) -> dict[str, Table]:
    """Microsoft's own files; `dev_ids.tsv` says which training pairs are GLUE's dev set."""
    table = read_table(folder / "msr_paraphrase_train.txt")
    held_out = set(map(tuple, _tab_lines(folder / "dev_ids.tsv")))
    is_held_out = [(row["#1 ID"], row["#2 ID"]) in held_out for row in table.rows]
    numbers = range(len(table))
    return {
        "train": table.select(number for number in numbers if not is_held_out[number]),
        "validation": table.select(number for number in numbers if is_held_out[number]),
    }


def _tab_lines(path: Path) -> list[list[str]]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; MRPC's dev set cannot be told from its training set")
    return [line.split("\t") for line in path.read_text(encoding="utf-8-sig").splitlines()]


def rename_columns(task_name: str, table: Table) -> Table:
    """A table with columns "text", "pair" and "label", from whichever form of the task it has."""
    task = TASKS[task_name]
    num_texts = len(task.columns)
    # The diagnostic set has the columns of RTE, whatever the others of its task have.
    forms = [task.file_columns, (*task.columns, "label"), (*_PAIR, "label")]
    fitting = [form for form in forms if set(form[:num_texts]) <= set(table.columns)]
    if not fitting:
        table.require(task.columns[0], f"rename them to {', '.join((*task.columns, 'label'))}")
        table.require(task.columns[-1], f"rename them to {', '.join((*task.columns, 'label'))}")
    form = fitting[0]
    names = {form[-1]: "label"} | dict(zip(form[:num_texts], _OWN, strict=False))
    rows = [{names[name]: value for name, value in row.items() if name in names} for row in table.rows]
    for row in rows:
        if str(row.get("label")).isdecimal() and int(row["label"]) < len(task.labels):
            row["label"] = task.labels[int(row["label"])]  # the files have the numbers of some labels
    return Table(table.name, rows, table.lines, table.num_dropped)


def submission_rows(task_name: str, part: str, predictions: Sequence[str | float]) -> tuple[str, list[str]]:
    """The server's file name for a test part, and its lines, from labels (names, or scores for STS-B).

    ValueError when there are not as many as the server wants.
    """
    task = TASKS[task_name]
    if part == f"test_{DIAGNOSTIC}":
        name, size = "AX", _DIAGNOSTIC_SIZE
    else:
        name, size = task.submissions[[f"test{ending}" for ending in task.evaluations].index(part)]
    if len(predictions) != size:
        raise ValueError(
            f"--submit: {name}.tsv has {len(predictions)} rows and the server wants {size}: "
            "give the whole test set, without --max_predict_samples"
        )
    if not task.labels:
        told = [f"{min(max(float(score), 0.0), 5.0):.3f}" for score in predictions]
    elif task_name in _NUMBERED:
        told = [str(task.labels.index(str(label))) for label in predictions]
    else:
        told = [str(label) for label in predictions]
    return f"{name}.tsv", ["index\tprediction", *(f"{row}\t{label}" for row, label in enumerate(told))]


def submission_files() -> list[str]:
    """All files that the server asks for."""
    return [f"{name}.tsv" for task in TASKS.values() for name, _ in task.submissions] + ["AX.tsv"]


def write_submission(path: Path, files: Mapping[str, Sequence[str]]) -> None:
    """One zip with the files at its root, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, lines in files.items():
            archive.writestr(name, "".join(f"{line}\n" for line in lines))
    os.replace(partial, path)
