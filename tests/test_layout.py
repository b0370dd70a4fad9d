"""Who may import whom, read from the source: the table of the design, enforced."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("hfbert", "recipes", "space") for path in (ROOT / folder).rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in SOURCES]

# What files may import whose path starts so, of hfbert and of others; the longest start wins.
OWN = {
    "hfbert/model/": (),
    "hfbert/data/": ("hfbert.data",),
    "hfbert/training/": ("hfbert.training",),
    "hfbert/__init__.py": ("hfbert.model", "hfbert.data"),
    "hfbert/predict.py": ("hfbert.model", "hfbert.data"),
    "hfbert/predict_lines.py": ("hfbert.predict",),
    "hfbert/interop.py": ("hfbert.model",),
    "hfbert/hub.py": ("hfbert.model", "hfbert.data"),
    "hfbert/cli.py": ("hfbert",),
    "recipes/": ("hfbert",),
    "space/": ("hfbert",),
}
EDGE = {"torch", "transformers", "safetensors", "huggingface_hub"}
OTHERS = {
    "hfbert/model/": {"torch", "transformers", "huggingface_hub"},
    "hfbert/data/": {
        *("torch", "numpy", "tokenizers", "transformers", "datasets", "sentencex", "rjieba", "tqdm", "rich"),
        *("packaging", "pyarrow"),  # what transformers and datasets stand on
    },
    "hfbert/training/": {
        *("torch", "numpy", "accelerate", "evaluate", "jsonargparse", "yaml", "matplotlib", "tqdm", "rich"),
        *("tensorboard", "scipy", "sklearn", "seqeval", "safetensors"),
        "datasets",  # what evaluate describes its inputs with
    },
    "hfbert/__init__.py": {"transformers"},
    "hfbert/predict.py": EDGE,
    "hfbert/predict_lines.py": EDGE,
    "hfbert/interop.py": EDGE,
    "hfbert/hub.py": EDGE,
    "hfbert/cli.py": None,  # anything declared
    "recipes/": None,
    "space/": {"gradio", "matplotlib"},
}


@dataclass(frozen=True)
class Import:
    module: str
    names: tuple[str, ...]
    level: int
    line: int


def imports_of(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, (), 0, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.level, node.lineno)


def is_inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def breaches(name: str, source: str) -> list[str]:
    """What a file imports and may not, one line each; empty if all is well."""
    rules = [start for start in OWN if name.startswith(start)]
    if not rules:
        return [f"{name}: a place the table of imports does not know"]
    rule = max(rules, key=len)
    found = []
    for one in imports_of(ast.parse(source)):
        root = one.module.split(".")[0]
        if one.level:
            is_allowed = rule == "hfbert/model/" and one.level == 1 and "." not in one.module and one.module
        elif root == "hfbert":
            parts = [f"{one.module}.{part}" for part in one.names] or [one.module]
            is_allowed = all(is_inside(part, OWN[rule]) or is_inside(one.module, OWN[rule]) for part in parts)
        elif root == "recipes":
            is_allowed = name.startswith("recipes/")
        else:
            allowed = OTHERS[rule]
            is_allowed = root in sys.stdlib_module_names or allowed is None or root in allowed
        if not is_allowed:
            found.append(f"{name}:{one.line}: may not import {'.' * one.level}{one.module}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_file_imports_only_what_its_folder_may(name: str) -> None:
    assert breaches(name, (ROOT / name).read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("hfbert/model/x.py", "from hfbert.model.configuration_hfbert import HFBertConfig"),
        ("hfbert/model/x.py", "from . import configuration_hfbert"),
        ("hfbert/model/x.py", "from ..data import words"),
        ("hfbert/model/x.py", "from .sub.module import x"),
        ("hfbert/model/x.py", "import numpy"),
        ("hfbert/data/x.py", "def f():\n    from hfbert.training import loop"),
        ("hfbert/data/x.py", "from hfbert import HFBertModel"),
        ("hfbert/data/x.py", "from .words import x"),
        ("hfbert/data/x.py", "import accelerate"),
        ("hfbert/training/x.py", "import hfbert.model.modeling_hfbert"),
        ("hfbert/training/x.py", "import transformers"),
        ("hfbert/interop.py", "from hfbert.data import words"),
        ("hfbert/hub.py", "from hfbert.training.loop import x"),
        ("space/app.py", "from recipes import pretrain"),
        ("hfbert/other/x.py", "import os"),
    ],
)
def test_the_check_sees_what_is_forbidden(name: str, source: str) -> None:
    assert len(breaches(name, source)) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("hfbert/model/")])
def test_no_line_of_prose_in_the_model_looks_like_a_relative_import(name: str) -> None:
    """Saving a model searches its text, docstrings too, for such lines and copies what they name."""
    source = (ROOT / name).read_text()
    looks = re.findall(r"^\s*(?:import\s+\.|from\s+\.)\S*.*$", source, flags=re.MULTILINE)
    real = [one for one in imports_of(ast.parse(source)) if one.level]
    assert len(looks) == len(real)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_unpickled_without_weights_only(name: str) -> None:
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert options.get("weights_only") == "True", f"{name}:{node.lineno}"


def test_importing_the_command_line_does_not_import_torch() -> None:
    tree = ast.parse((ROOT / "hfbert" / "cli.py").read_text())
    at_the_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {one.module.split(".")[0] for node in at_the_top for one in imports_of(node)}
    assert not modules & {"torch", "transformers", "accelerate", "datasets"}
