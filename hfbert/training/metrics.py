"""Turn predictions and references into the scores papers print, with nothing downloaded.

GlueMetric("mrpc").compute(predictions=[1, 0], references=[1, 1])  ->  {"accuracy": 0.5, "f1": 0.667}

The classes are `evaluate.Metric`s, so `add_batch`, `compute` and `evaluate.combine` work. Over several
processes feed them what `accelerator.gather_for_metrics` returns: it drops rows that only fill up a batch.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import datasets
import evaluate
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import classification_report
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

MNLI = ("mnli", "mnli_matched", "mnli_mismatched")
GLUE_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", *MNLI, "qnli", "rte", "wnli")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNITS = re.compile(rf"[{_HAN}]|[^\s{_HAN}]+")  # a Chinese character, or what stands between two of them
_CHINESE_PUNCTUATION = "，。：？！“”；’‘《》…·、「」（）－～『』【】"


class GlueMetric(evaluate.Metric):
    """The scores of a GLUE task (Wang et al. 2018): Matthews correlation for CoLA, Pearson and Spearman
    correlation for STS-B, accuracy and F1 for MRPC and QQP, accuracy for the others.

    ValueError for a task GLUE does not have. A correlation with a constant is 0, as scikit-learn has it.
    """

    def __init__(self, task: str, **settings: Any) -> None:
        if task not in GLUE_TASKS:
            raise ValueError(f"task {task!r} is not in GLUE: choose from {', '.join(GLUE_TASKS)}")
        super().__init__(config_name=task, **{"keep_in_memory": True} | settings)

    def _info(self) -> evaluate.MetricInfo:
        kind = datasets.Value("float64" if self.config_name == "stsb" else "int64")
        return _describe("Scores of a GLUE task.", predictions=kind, references=kind)

    def _compute(self, predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
        if self.config_name == "cola":
            return {"matthews_correlation": float(matthews_corrcoef(references, predictions))}
        if self.config_name == "stsb":
            return {
                name: _correlate(measure, predictions, references) for name, measure in _CORRELATIONS.items()
            }
        accuracy = {"accuracy": float(accuracy_score(references, predictions))}
        if self.config_name in ("mrpc", "qqp"):
            return accuracy | {"f1": float(f1_score(references, predictions, zero_division=0))}
        return accuracy


_CORRELATIONS: dict[str, Callable[..., Any]] = {"pearson": pearsonr, "spearmanr": spearmanr}


def _correlate(
    measure: Callable[..., Any], predictions: Sequence[float], references: Sequence[float]
) -> float:
    is_defined = len(set(predictions)) > 1 and len(set(references)) > 1
    return float(measure(predictions, references)[0]) if is_defined else 0.0


class ClassificationMetric(evaluate.Metric):
    """Accuracy and macro F1 (the mean of the F1 of all classes) of numbered classes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"keep_in_memory": True} | settings)

    def _info(self) -> evaluate.MetricInfo:
        kind = datasets.Value("int64")
        return _describe("Scores of a classifier.", predictions=kind, references=kind)

    def _compute(self, predictions: Sequence[int], references: Sequence[int]) -> dict[str, float]:
        return {
            "accuracy": float(accuracy_score(references, predictions)),
            "macro_f1": float(f1_score(references, predictions, average="macro", zero_division=0)),
        }


class EntityMetric(evaluate.Metric):
    """Precision, recall and F1 of whole entities (CoNLL-2003's definition), overall and for each type.

    `predictions` and `references` are lists of tags a sentence, in IOB1 or IOB2. Without any entity in both
    the scores are 0, as seqeval has it.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"keep_in_memory": True} | settings)

    def _info(self) -> evaluate.MetricInfo:
        tags = datasets.List(datasets.Value("string"))
        return _describe("Scores of whole entities.", predictions=tags, references=tags)

    def _compute(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, Any]:
        if not any(tag != "O" for tags in (*predictions, *references) for tag in tags):
            types: dict[str, Any] = {}
            overall = dict.fromkeys(("precision", "recall", "f1"), 0.0)
        else:
            report = classification_report(references, predictions, output_dict=True, zero_division=0)
            types = {name: _entity_scores(row) for name, row in report.items() if not name.endswith(" avg")}
            overall = _entity_scores(report["micro avg"])
            del overall["number"]
        pairs = [
            pair for tags in zip(references, predictions, strict=True) for pair in zip(*tags, strict=True)
        ]
        right = sum(truth == guess for truth, guess in pairs)
        accuracy = right / len(pairs) if pairs else 0.0
        return (
            types
            | {f"overall_{name}": score for name, score in overall.items()}
            | {"overall_accuracy": accuracy}
        )


def _entity_scores(row: Mapping[str, Any]) -> dict[str, float]:
    scores = {"precision": row["precision"], "recall": row["recall"], "f1": row["f1-score"]}
    return {name: float(score) for name, score in scores.items()} | {"number": int(row["support"])}


class AnswerMetric(evaluate.Metric):
    """Exact match and F1 of answers, in percent, as the SQuAD 1.1 and 2.0 scripts define them (Rajpurkar et
    al. 2016, 2018), or with `language="zh"` on characters, as CMRC 2018 counts them.

    A prediction is {"id", "prediction_text"}, "" for no answer; a reference {"id", "answers": [text, ...]},
    [] for none. The best of the given answers counts. ValueError when a reference has no prediction.
    """

    def __init__(self, language: str = "en", **settings: Any) -> None:
        super().__init__(config_name=language, **{"keep_in_memory": True} | settings)

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return _describe(
            "Exact match and F1 of answers.",
            predictions={"id": text, "prediction_text": text},
            references={"id": text, "answers": datasets.List(text)},
        )

    def _compute(
        self, predictions: list[dict[str, str]], references: list[dict[str, Any]]
    ) -> dict[str, float]:
        guesses = {row["id"]: row["prediction_text"] for row in predictions}
        missing = [row["id"] for row in references if row["id"] not in guesses]
        if missing:
            raise ValueError(f"{len(missing)} questions have no prediction, the first is {missing[0]!r}")
        scores = [self._score(guesses[row["id"]], row["answers"]) for row in references]
        count = max(len(scores), 1)
        return {
            "exact_match": 100 * sum(exact for exact, _ in scores) / count,
            "f1": 100 * sum(overlap for _, overlap in scores) / count,
        }

    def _score(self, guess: str, answers: list[str]) -> tuple[float, float]:
        words, overlap = (
            (chinese_units, _substring_f1) if self.config_name == "zh" else (english_words, _bag_f1)
        )
        pairs = [(words(guess), words(answer)) for answer in answers or [""]]
        return max(float(one == other) for one, other in pairs), max(overlap(*pair) for pair in pairs)


def english_words(text: str) -> list[str]:
    """Lower-cased words without punctuation and articles, as the SQuAD script normalises an answer."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return _ARTICLES.sub(" ", bare).split()


def chinese_units(text: str) -> list[str]:
    """Single Chinese characters, and whole words of other scripts, lower-cased and without punctuation."""
    marks = string.punctuation + _CHINESE_PUNCTUATION
    bare = "".join(character for character in text.lower().strip() if character not in marks)
    return _UNITS.findall(bare)


def _bag_f1(guess: list[str], answer: list[str]) -> float:
    return _f1(sum((Counter(guess) & Counter(answer)).values()), guess, answer)


def _substring_f1(guess: list[str], answer: list[str]) -> float:
    """CMRC counts the longest run that both have in common, not the bag of units."""
    longest, runs = 0, [0] * (len(answer) + 1)
    for unit in guess:
        runs = [0, *(runs[place] + 1 if unit == other else 0 for place, other in enumerate(answer))]
        longest = max(longest, *runs)
    return _f1(longest, guess, answer)


def _f1(common: int, guess: list[str], answer: list[str]) -> float:
    if not guess or not answer:
        return float(guess == answer)  # no answer is right only where there is none
    return 2 * common / (len(guess) + len(answer))


def _describe(description: str, **features: Any) -> evaluate.MetricInfo:
    return evaluate.MetricInfo(
        description=description, citation="", inputs_description="", features=datasets.Features(features)
    )
