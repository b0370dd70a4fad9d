"""Fine-tune the heads of hfbert and of stock transformers by the same recipes, seeds and rows, side by side.

python tests/benchmarks/finetuning.py --data DATA --start runs/tiny/model --output runs/compare
->  runs/compare/{hfbert,stock,random} with the results of every seed; the table of `hfbert report`

DATA holds glue/CoLA and so on in the official layout, ner/wnut17, and sentiment_zh/chnsenticorp.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState
from transformers import BertForSequenceClassification, BertForTokenClassification

from hfbert import HFBertForSequenceClassification, HFBertForTokenClassification
from hfbert.training.comparison import summarise_run, to_markdown

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))
import glue
import ner

HEADS: dict[str, tuple[Any, Any]] = {
    "hfbert": (HFBertForSequenceClassification, HFBertForTokenClassification),
    "stock": (BertForSequenceClassification, BertForTokenClassification),
    "random": (HFBertForSequenceClassification, HFBertForTokenClassification),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--start", required=True, help="folder of a pretrained BERT")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=["cola", "sst2", "mrpc", "rte", "stsb", "wnut17", "zh"])
    parser.add_argument("--heads", nargs="+", default=list(HEADS), choices=HEADS)
    parser.add_argument("recipe_flags", nargs="*", help="after --: flags of the recipes, such as --seeds 3")
    arguments = parser.parse_args()
    for task in arguments.tasks:
        for heads in arguments.heads:
            run_task(task, heads, arguments)
    print(to_markdown([summarise_run(arguments.output / heads) for heads in arguments.heads]))


def run_task(task: str, heads: str, arguments: argparse.Namespace) -> None:
    """One task with one kind of heads; what is there already is not run again."""
    AcceleratorState._reset_state(reset_partial_state=True)
    glue.HEAD, ner.HEAD = HEADS[heads]
    flags = ["--model_name_or_path", arguments.start, "--output_dir", str(arguments.output / heads / task)]
    flags += ["--random_weights", str(heads == "random").lower(), *arguments.recipe_flags]
    if task == "wnut17":
        folder = arguments.data / "ner" / "wnut17"
        files = {"train": "wnut17train.conll", "validation": "emerging.dev.conll"}
        recipe = ner
    elif task == "zh":
        folder = arguments.data / "sentiment_zh" / "chnsenticorp"
        files = {"train": "train.tsv", "validation": "dev.tsv"}
        flags += ["--text_column", "0", "--label_column", "1"]
        recipe = glue
    else:
        flags += ["--task_name", task, "--dataset_name", str(arguments.data / "glue")]
        folder, files, recipe = Path(), {}, glue
    for part, file in files.items():
        flags += [f"--{part}_file", str(folder / file)]
    recipe.main(flags)


if __name__ == "__main__":
    main()
