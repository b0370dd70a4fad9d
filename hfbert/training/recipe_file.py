"""Turn a YAML recipe into flat keys with their values and places, or into one line that says what is wrong.

`learning_rate: 4e-4` in line 7 of tiny.yaml
    ->  {"learning_rate": Given(0.0004, "tiny.yaml, line 7: learning_rate")}
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

NULL = re.compile(r"~|null|Null|NULL|", re.ASCII)
BOOL = re.compile(r"true|True|TRUE|false|False|FALSE", re.ASCII)
INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    re.ASCII,
)


@dataclasses.dataclass(frozen=True)
class Given:
    """A value a person wrote, and the place to name when it is wrong."""

    value: Any
    place: str


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(name: str, known: Sequence[str], prefix: str = "") -> str:
    name = name.replace("-", "_").lower()
    begun = [other for other in known if len(name) > 2 and other.startswith(name)]
    nearest = begun or difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{prefix}{nearest[0]}`?" if nearest else "`--help` lists the options"


class Loader(yaml.SafeLoader):
    """YAML 1.2 scalars: `4e-4` is a number; `no`, `12:30` and `2024-01-01` are text."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute


class Dumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or 1.2 would read as something other than text."""


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value)  # 010 is ten, not eight


Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
for _tag, _pattern, _first in (
    ("null", NULL, ["~", "n", "N", ""]),
    ("bool", BOOL, list("tTfF")),
    ("int", INT, list("-+0123456789")),
    ("float", FLOAT, list("-+.0123456789")),
):
    _whole = re.compile(f"(?:{_pattern.pattern})$", re.ASCII)  # PyYAML matches from the start only
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, _first)
    Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, _first)


def read_config(path: Path, known: Sequence[str]) -> dict[str, Given]:
    """The file's keys with value and place; ValueError with `file:line` for the first thing wrong."""
    root = _compose(_read_text(path), path)
    if root is None:
        raise ValueError(f"--config {path}: the file holds no options; write `key: value` lines")
    if not isinstance(root, yaml.MappingNode):
        line = root.start_mark.line + 1
        raise ValueError(f"{path}, line {line}: expected `key: value` lines, got {_node_words(root)}")
    found: dict[str, Given] = {}
    for key_node, value_node in root.value:
        name, place = str(key_node.value), f"{path}, line {key_node.start_mark.line + 1}"
        if name in found:
            raise ValueError(f"{place}: `{name}` stands twice in this file; keep one")
        if name not in known:
            raise ValueError(
                f"{place}: no option `{shorten(name)[1:-1]}`; {_key_hint(name, value_node, known)}"
            )
        found[name] = Given(_construct(value_node, path), f"{place}: {name}")
    return found


def _node_words(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else shorten(node.value)


def _key_hint(name: str, value_node: yaml.Node, known: Sequence[str]) -> str:
    if isinstance(value_node, yaml.MappingNode):
        return "options stand at the left margin, without sections"
    return did_you_mean(name, known)


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise ValueError(f"--config {path} is a folder; name a YAML file in it")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        beside = path.parent.glob("*.y*ml") if path.parent.is_dir() else []
        nearest = difflib.get_close_matches(path.name, sorted(other.name for other in beside), n=1)
        hint = f"did you mean {path.parent / nearest[0]}?" if nearest else "check the path"
        raise ValueError(f"--config {path}: no such file; {hint}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"--config {path}, line {line}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"--config {path}: {error.strerror}") from None


def _compose(text: str, path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ValueError(f"{path}, line {line}: a control character; delete it") from None
    except yaml.MarkedYAMLError as error:
        raise _bad_yaml(error, path) from None
    except RecursionError:
        raise ValueError(f"{path}: brackets nested too deeply; options are flat") from None


def _construct(node: yaml.Node, path: Path) -> Any:
    loader = Loader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.MarkedYAMLError as error:
        raise _bad_yaml(error, path) from None
    finally:
        loader.dispose()


def _bad_yaml(error: yaml.MarkedYAMLError, path: Path) -> ValueError:
    mark = error.problem_mark or error.context_mark
    place = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
    return ValueError(f"{place}: not valid YAML: {error.problem}; check indentation, quotes and brackets")
