"""Turn a YAML recipe and command-line flags into option dataclasses.

`learning_rate: 4e-4` in tiny.yaml, `--seed 3`  ->  (OptimOptions(learning_rate=0.0004), DataOptions(seed=3))

Flags and YAML keys are flat over all the dataclasses; a flag wins over the file. jsonargparse checks types
and writes the help; each value is handed to it alone, so that an error can say which line or flag it is from.
"""

import ast
import dataclasses
import inspect
import io
import json
import math
import os
import re
import sys
import tokenize
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import jsonargparse
import yaml

from hfbert.training.recipe_file import BOOL, FLOAT, NULL, Dumper, Given, did_you_mean, read_config, shorten

MAX_ERROR_CHARACTERS = 300
RESERVED = ("config", "debug", "help")  # flags of every recipe, never fields
_SWITCH = re.compile(f"{BOOL.pattern}|{NULL.pattern}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Option:
    """One flag: the field behind it, its accepted types and its help text."""

    name: str
    type: Any
    field: dataclasses.Field[Any]
    help: str

    @property
    def arms(self) -> tuple[Any, ...]:
        """The types accepted: (int, NoneType) for `int | None`."""
        return get_args(self.type) if get_origin(self.type) in (Union, types.UnionType) else (self.type,)

    @property
    def list_type(self) -> Any:
        return next((arm for arm in self.arms if get_origin(arm) is list), None)

    @property
    def is_required(self) -> bool:
        return self.field.default is dataclasses.MISSING and self.field.default_factory is dataclasses.MISSING

    def default(self) -> Any:
        if self.field.default_factory is not dataclasses.MISSING:
            return self.field.default_factory()
        return self.field.default


def parse_options(
    *option_classes: type,
    argv: Sequence[str] | None = None,
    prog: str | None = None,
    description: str | None = None,
) -> tuple[Any, ...]:
    """Read `--config file.yaml` and the flags over it into one instance of each dataclass, in order.

    Ends the program with exit code 2 and one line on stderr when anything is wrong, with 0 after `--help`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _collect_options(option_classes)
    if "--help" in arguments or "-h" in arguments:
        _build_parser(options, option_classes, prog, description).print_help()
        raise SystemExit(0)
    try:
        return _read_options(option_classes, options, arguments)
    except ValueError as error:
        _end_with_one_line(error, "--debug" in arguments, prog)


def load_resolved(path: Path, *option_classes: type) -> tuple[Any, ...]:
    """Read back what `save_resolved` wrote; ValueError names the file and line that do not fit."""
    return _read_options(option_classes, _collect_options(option_classes), ["--config", str(path)])


def resolve(options: Sequence[object]) -> str:
    """Every value of every dataclass as one flat YAML text that `--config` reads back to equal objects."""
    sections = [
        f"# {type(part).__name__}\n"
        + yaml.dump(_plain_values(part), Dumper=Dumper, allow_unicode=True, sort_keys=False, width=10_000)
        for part in options
        if dataclasses.fields(part)  # type: ignore[arg-type]
    ]
    return "\n".join(sections)


def save_resolved(options: Sequence[object], path: Path) -> None:
    """Write `resolve(options)` to a file, whole or not at all."""
    unfinished = path.with_name(path.name + ".partial")
    unfinished.write_text(resolve(options), encoding="utf-8")
    os.replace(unfinished, path)


def run(main: Callable[[list[str] | None], None], argv: list[str] | None = None) -> None:
    """Run a recipe; bad input (ValueError, OSError) ends it with one line and exit code 2, Ctrl-C with 130.

    `--debug` shows the traceback as well. Other exceptions are bugs of ours and keep their traceback. Of
    several processes only the main one prints.
    """
    try:
        main(argv)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (ValueError, OSError) as error:
        _end_with_one_line(error, "--debug" in (sys.argv[1:] if argv is None else argv))


def is_main_process() -> bool:
    """Whether this process is the one that speaks, by the variables that launchers set."""
    return all(os.environ.get(name, "0") in ("", "0") for name in ("RANK", "LOCAL_RANK"))


def _end_with_one_line(error: Exception, debug: bool, prog: str | None = None) -> NoReturn:
    if is_main_process():
        if debug:
            traceback.print_exception(error)
        print(_one_line(f"{prog or Path(sys.argv[0]).name}: error: {_describe(error)}"), file=sys.stderr)
    raise SystemExit(2) from None


def _describe(error: Exception) -> str:
    """The message of an error; `[Errno 2] No such file ...: 'x'` becomes `x: No such file ...`."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _one_line(message: str) -> str:
    """At most 300 characters, cut in the middle: the place is at the start, the remedy at the end."""
    line = " ".join(message.split())
    if len(line) <= MAX_ERROR_CHARACTERS:
        return line
    half = (MAX_ERROR_CHARACTERS - 5) // 2
    return f"{line[:half]} ... {line[-half:]}"


def _collect_options(option_classes: Sequence[type]) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for option_class in option_classes:
        comments, hints = _field_comments(option_class), get_type_hints(option_class)
        for field in dataclasses.fields(option_class):
            assert field.name not in options, f"option {field.name} stands in two dataclasses"
            assert field.name not in RESERVED, f"option {field.name} is a flag of every recipe"
            options[field.name] = Option(field.name, hints[field.name], field, comments.get(field.name, ""))
    return options


def _field_comments(option_class: type) -> dict[str, str]:
    """Help texts: the `#` comment at the end of a field's line, or the comment lines right above it."""
    texts: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(option_class.__mro__)):
        try:
            source = inspect.cleandoc("\n" + inspect.getsource(base))
        except (OSError, TypeError):
            continue  # no source, as for a class typed into an interactive session: no help texts
        texts |= _comments_in(source)
    return texts


def _comments_in(source: str) -> dict[str, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    at_line = {line: text for (line, _), text in comments.items()}
    lines = source.splitlines()
    alone = {line for line in at_line if lines[line - 1].lstrip().startswith("#")}
    texts = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above: list[str] = []
            while (line := node.lineno - 1 - len(above)) in alone:
                above.insert(0, at_line[line])
            texts[node.target.id] = at_line.get(node.end_lineno or node.lineno) or " ".join(above)
    return texts


def _build_parser(
    options: Mapping[str, Option],
    option_classes: Sequence[type],
    prog: str | None = None,
    description: str | None = None,
) -> jsonargparse.ArgumentParser:
    parser = jsonargparse.ArgumentParser(
        prog=prog, description=description, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument("--config", help="YAML file with any of the options below; flags win over it")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    for option_class in option_classes:
        group = parser.add_argument_group(option_class.__name__)
        for field in dataclasses.fields(option_class):
            _add_argument(group, options[field.name])
    return parser


def _add_argument(group: Any, option: Option) -> None:
    # Required is checked over file and flags together, so no flag is required by itself.
    help_text = ("required; " if option.is_required else "") + option.help
    default = None if option.is_required else option.default()
    group.add_argument(f"--{option.name}", type=option.type, default=default, help=help_text.strip() or None)


def _read_options(
    option_classes: Sequence[type], options: Mapping[str, Option], arguments: Sequence[str]
) -> tuple[Any, ...]:
    config_path, flags = _scan_flags(arguments, options)
    written = read_config(config_path, list(options)) if config_path is not None else {}
    parser = _build_parser(options, option_classes)
    checked = {name: _check_object(options[name], given, parser) for name, given in written.items()}
    checked |= {name: _check_flag(options[name], given, parser) for name, given in flags.items()}
    missing = [
        option.name for option in options.values() if option.is_required and option.name not in checked
    ]
    if missing:
        raise ValueError(f"--{missing[0]} is required: give the flag, or `{missing[0]}:` in a --config file")
    places = {name: given.place for name, given in (written | flags).items()}
    return tuple(_build(option_class, checked, places) for option_class in option_classes)


def _build(option_class: type, checked: Mapping[str, Any], places: Mapping[str, str]) -> Any:
    names = [field.name for field in dataclasses.fields(option_class)]
    try:
        return option_class(**{name: checked[name] for name in names if name in checked})
    except ValueError as error:
        # `__post_init__` names the option; the file and line are known only here.
        named = next((name for name in re.findall(r"\w+", str(error)) if name in names), "")
        place = places.get(named, "")
        raise ValueError(f"{place}: {error}" if "line" in place else str(error)) from error


def _scan_flags(
    arguments: Sequence[str], options: Mapping[str, Option]
) -> tuple[Path | None, dict[str, Given]]:
    config_path: Path | None = None
    flags: dict[str, Given] = {}
    for name, texts in _split_flags(arguments):
        if name == "debug" and not texts:
            continue
        if name == "config":
            if len(texts) != 1 or config_path is not None:
                raise ValueError(f"--config takes one file and stands once, got {shorten(texts)}")
            config_path = Path(texts[0])
        elif name not in options:
            known = [*options, *RESERVED]
            raise ValueError(f"--{name}: no such option; {did_you_mean(name, known, '--')}")
        else:
            flags[name] = Given(_flag_text(options[name], texts), f"--{name}")
    return config_path, flags


def _split_flags(arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    """["--seed=3", "--files", "a", "b"] -> [("seed", ["3"]), ("files", ["a", "b"])]"""
    found: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, text = argument[2:].partition("=")
            found.append((name, [text] if equals else []))
        elif not found:
            hint = f"--config {argument}" if argument.endswith((".yaml", ".yml")) else "--name value"
            raise ValueError(f"{shorten(argument)} belongs to no flag; write `{hint}`")
        else:
            found[-1][1].append(argument)
    return found


def _flag_text(option: Option, texts: list[str]) -> str:
    """The one text for a flag: a bare switch means true, several words make a list."""
    if bool in option.arms and not texts:
        return "true"
    if option.list_type is not None and texts and not (len(texts) == 1 and _is_whole_value(option, texts[0])):
        is_text = get_args(option.list_type)[0] is str
        return json.dumps(texts, ensure_ascii=False) if is_text else f"[{', '.join(texts)}]"
    if len(texts) != 1:
        got = shorten(texts) if texts else "none"
        raise ValueError(f"--{option.name} takes one value ({_type_words(option)}), got {got}")
    return texts[0]


def _is_whole_value(option: Option, text: str) -> bool:
    return text.startswith("[") or (type(None) in option.arms and NULL.fullmatch(text) is not None)


def _check_flag(option: Option, given: Given, parser: jsonargparse.ArgumentParser) -> Any:
    return _check(option, given, lambda: parser.parse_args([f"--{option.name}={given.value}"]))


def _check_object(option: Option, given: Given, parser: jsonargparse.ArgumentParser) -> Any:
    if str in option.arms and isinstance(given.value, str):
        return given.value  # jsonargparse would read a quoted "null" again, as nothing
    return _check(option, given, lambda: parser.parse_object({option.name: given.value}))


def _check(option: Option, given: Given, parse: Callable[[], Any]) -> Any:
    if bool in option.arms and isinstance(given.value, str) and not _SWITCH.fullmatch(given.value):
        raise _wrong_type(option, given)  # jsonargparse would take "yes", in the file and as a flag
    try:
        value = getattr(parse(), option.name)
    except (jsonargparse.ArgumentError, TypeError, ValueError):
        raise _wrong_type(option, given) from None
    if value is None and type(None) not in option.arms:
        raise _wrong_type(option, given)
    return value


def _wrong_type(option: Option, given: Given) -> ValueError:
    value, remedy = given.value, ""
    looks_like_number = isinstance(value, float) or (isinstance(value, str) and FLOAT.fullmatch(value))
    if looks_like_number and int in option.arms and math.isfinite(float(value)) and float(value).is_integer():
        remedy = f": write {int(float(value))}"
    elif str in option.arms and isinstance(value, int | float):
        remedy = f': put it in quotes, "{value}"'
    return ValueError(f"{given.place}: expected {_type_words(option)}, got {shorten(value)}{remedy}")


def _type_words(option: Option) -> str:
    return " or ".join(_words_for(arm) for arm in option.arms)


def _words_for(arm: Any) -> str:
    if get_origin(arm) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(arm))
    if get_origin(arm) is list:
        return f"a list with {_words_for(get_args(arm)[0])} in each place"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return words.get(arm, "a path" if arm is Path else str(arm))


def _plain_values(part: Any) -> dict[str, Any]:
    values = dataclasses.asdict(part)
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
