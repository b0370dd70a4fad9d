"""Turn a finished run into its model folder's card, and the folder into a Hub repository.

runs/tiny/model + {"masked accuracy": 0.31}  ->  runs/tiny/model/README.md  ->  you/tiny on the Hub
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

CARD = """---
{metadata}
---

# {name}

A BERT encoder (Devlin et al. 2018) pretrained from raw text with masked language modelling and next sentence
prediction by hfbert.
一个用 hfbert 从原始文本预训练的 BERT 编码器：掩码语言模型加下一句预测。

## Use it / 用法

```python
from transformers import pipeline

fill = pipeline("fill-mask", "{repo_id}", trust_remote_code=True)  # or `import hfbert` without it
fill("{example}")
```

Class 0 of the next-sentence head means that sentence B follows A, class 1 that it is random.
下一句预测：0 表示 B 是 A 的下一句，1 表示随机句子。

## How it was trained / 训练

| | |
|---|---|
{facts}

## On held-out documents / 留出文档上的结果

| metric | value | baseline |
|---|---|---|
{results}

The baselines are the best constant guess (masked tokens) and the majority (sentence pairs).

## Limits / 局限

It knows what its corpus says, in the words of its corpus, with whatever errors and leanings that has. It has
not been checked for any use beyond the numbers above. 模型只了解其语料中的内容，使用前请自行评估。
"""


TASK_CARD = """---
{metadata}
---

# {name}

A BERT (Devlin et al. 2018) fine-tuned for {task} by hfbert.
用 hfbert 为任务 {task} 微调的 BERT。

## Use it / 用法

```python
from transformers import AutoTokenizer, {auto_class}

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {auto_class}.from_pretrained("{name}", trust_remote_code=True)  # or `import hfbert`
```

## How it was trained / 训练

| | |
|---|---|
{facts}

## On the validation set / 验证集结果

| metric | value | baseline |
|---|---|---|
{results}

The baseline is the best guess without reading. 基线为不看输入的最佳猜测。
"""
_PIPELINES = {
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
}


def publish_task_model(
    folder: Path, name: str, auto_class: str, result: Mapping[str, Any], push: bool, private: bool
) -> None:
    """Write the card of a fine-tuned model from its results.json, and upload the folder if that is wanted."""
    shown = {
        "start": result["model"],
        "training rows": f"{result['train_rows']:,}",
        "validation rows": f"{result['eval_rows']:,}",
        "learning rate": f"{result['learning_rate']:g}",
        "steps": f"{result['steps']:,}",
        "seed": result["seed"],
    }
    baseline = {metric: f"{value:.4g}" for metric, value in result["baseline"].items()}
    scores = [
        f"| {metric.replace('_', ' ')} | {value:.4g} | {baseline.get(metric, '')} |"
        for metric, value in result["metrics"].items()
    ]
    metadata = ModelCardData(
        library_name="transformers", pipeline_tag=_PIPELINES[auto_class], tags=["bert", "hfbert"]
    )
    card = TASK_CARD.format(
        metadata=metadata.to_yaml(),
        name=name,
        task=result["task"],
        auto_class=auto_class,
        facts="\n".join(f"| {key} | {value} |" for key, value in shown.items()),
        results="\n".join(scores),
    )
    ModelCard(card).save(folder / "README.md")
    if push:
        print(push_model(folder, name, private))


def write_model_card(
    folder: Path,
    name: str,
    facts: Mapping[str, str],
    results: Sequence[tuple[str, float, float | None]],
    example: str,
) -> None:
    """Write README.md for a model folder; `facts` and `results` become its two tables."""
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag="fill-mask",
        tags=["bert", "hfbert", "masked-lm", "next-sentence-prediction"],
    )
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    scores = "\n".join(
        f"| {metric} | {value:.3f} | {'' if baseline is None else f'{baseline:.3f}'} |"
        for metric, value, baseline in results
    )
    card = CARD.format(
        metadata=metadata.to_yaml(), name=name, repo_id=name, example=example, facts=rows, results=scores
    )
    ModelCard(card).save(folder / "README.md")


def push_model(folder: Path, repo_id: str, private: bool) -> str:
    """Upload a model folder as one commit and give its address; ValueError for a refused or missing token."""
    try:
        api = HfApi()
        url = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message="Upload a model by hfbert")
    except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"--push_to_hub to {repo_id} failed: {reason} (log in with `hf auth login`)"
        ) from error
    return str(url)
