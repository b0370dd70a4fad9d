"""Turn a finished run into a model folder's card, and the folder into a Hub repository.

runs/tiny/model + {"masked accuracy": 0.31}  ->  runs/tiny/model/README.md  ->  you/tiny on the Hub
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

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
