"""YAML and flags in, dataclasses out; everything wrong in one line that names the place and the remedy."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from hfbert.training.options import load_resolved, parse_options, resolve, run, save_resolved


@dataclass(kw_only=True)
class Speed:
    learning_rate: float  # peak rate, 100% of it
    # Share of the run
    # spent rising.
    warmup_ratio: float = 0.0
    kind: Literal["linear", "constant"] = "linear"

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate={self.learning_rate} must be above 0")


@dataclass(kw_only=True)
class Run:
    seed: int = 0
    output_dir: Path = Path("runs/one")
    run_name: str | None = None
    max_steps: int | None = None
    push_to_hub: bool = False
    files: list[str] = field(default_factory=list)
    sizes: list[int] | None = None
    language: str = "en"


def write(folder: Path, text: str | bytes, name: str = "recipe.yaml") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line on stderr of a refused command line."""
    with pytest.raises(SystemExit) as ending:
        parse_options(Speed, Run, argv=argv, prog="pretrain.py")
    captured = capsys.readouterr()
    assert ending.value.code == 2
    assert captured.out == ""
    assert captured.err.endswith("\n") and captured.err.count("\n") == 1
    assert len(captured.err) <= 301
    assert captured.err.startswith("pretrain.py: error: ")
    return captured.err.removeprefix("pretrain.py: error: ").rstrip()


def read(*argv: str) -> tuple[Speed, Run]:
    return parse_options(Speed, Run, argv=argv)  # type: ignore[return-value]


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    path = write(tmp_path, "learning_rate: 4e-4\nseed: 3\nkind: constant\n")
    assert read("--config", path, "--seed", "5") == (Speed(learning_rate=4e-4, kind="constant"), Run(seed=5))
    assert read("--seed", "5", f"--config={path}") == (
        Speed(learning_rate=4e-4, kind="constant"),
        Run(seed=5),
    )


@pytest.mark.parametrize("text", ["4e-4", "4E-4", "0.0004", ".0004", "+4e-04"])
def test_a_number_reads_the_same_in_yaml_and_on_the_command_line(tmp_path, text):
    assert read("--learning_rate", text)[0].learning_rate == 4e-4
    assert read("--config", write(tmp_path, f"learning_rate: {text}\n"))[0].learning_rate == 4e-4


def test_a_whole_number_is_a_float_where_a_float_is_asked(tmp_path):
    rate = read("--config", write(tmp_path, "learning_rate: 1\n"))[0].learning_rate
    assert rate == 1.0 and type(rate) is float


def test_a_switch_alone_means_true():
    rate = ("--learning_rate", "1")
    assert read(*rate)[1].push_to_hub is False
    assert read(*rate, "--push_to_hub")[1].push_to_hub is True
    assert read("--push_to_hub", *rate)[1].push_to_hub is True
    assert read(*rate, "--push_to_hub", "true")[1].push_to_hub is True
    assert read(*rate, "--push_to_hub", "false")[1].push_to_hub is False
    assert read(*rate, "--push_to_hub=false")[1].push_to_hub is False


def test_null_takes_a_value_back(tmp_path):
    path = write(tmp_path, "learning_rate: 1\nmax_steps: 10\nrun_name: a\nsizes: [1]\n")
    argv = ("--config", path, "--max_steps", "null", "--run_name", "null", "--sizes", "null")
    assert read(*argv)[1] == Run()


def test_lists_come_as_words_or_in_brackets(tmp_path):
    rate = ("--learning_rate", "1")
    assert read(*rate, "--files", "a b", "12", "甲")[1].files == ["a b", "12", "甲"]
    assert read(*rate, "--files", "one")[1].files == ["one"]
    assert read(*rate, "--files", "[a, b]")[1].files == ["a", "b"]
    assert read(*rate, "--sizes", "1", "2")[1].sizes == [1, 2]
    assert read("--config", write(tmp_path, "learning_rate: 1\nfiles: [甲, '12']\n"))[1].files == ["甲", "12"]


def test_chinese_stands_in_paths_values_and_file_names(tmp_path):
    path = write(tmp_path, "learning_rate: 1\noutput_dir: 输出/第一次\nrun_name: 预训练\n", "配方.yaml")
    assert read("--config", path)[1] == Run(output_dir=Path("输出/第一次"), run_name="预训练")
    assert read("--learning_rate", "1", "--run_name", "预训练")[1].run_name == "预训练"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbflearning_rate: 1\r\nseed: 2\r\n")
    assert read("--config", path) == (Speed(learning_rate=1.0), Run(seed=2))


@pytest.mark.parametrize("text", ["no", "12:30", "2024-01-01", "off", "1_000"])
def test_text_that_yaml_1_1_would_turn_into_something_else_stays_text(tmp_path, text):
    assert read("--config", write(tmp_path, f"learning_rate: 1\nlanguage: {text}\n"))[1].language == text


def test_whole_numbers_with_leading_zeros_are_decimal(tmp_path):
    assert read("--config", write(tmp_path, "learning_rate: 1\nseed: 010\n"))[1].seed == 10


@pytest.mark.parametrize("flag", ["--learning_rat", "--learning-rate", "--Learning_Rate", "--lear"])
def test_an_unknown_flag_is_refused_with_the_nearest_name(capsys, flag):
    assert refusal(capsys, flag, "1") == f"{flag}: no such option; did you mean `--learning_rate`?"


def test_an_abbreviated_flag_is_never_taken_for_the_whole(capsys):
    assert "did you mean `--push_to_hub`?" in refusal(capsys, "--learning_rate", "1", "--push")


def test_an_unknown_flag_like_nothing_else_points_to_the_help(capsys):
    assert refusal(capsys, "--zzzzzz") == "--zzzzzz: no such option; `--help` lists the options"


def test_an_unknown_key_is_refused_with_file_line_and_the_nearest_name(capsys, tmp_path):
    path = write(tmp_path, "# a comment\nlearning_rat: 1\n")
    assert refusal(capsys, "--config", path) == (
        f"{path}, line 2: no option `learning_rat`; did you mean `learning_rate`?"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("learning_rate: fast", "expected a number, got 'fast'"),
        ("learning_rate: true", "expected a number, got True"),
        ("learning_rate:", "expected a number, got None"),
        ("seed: 1.5", "expected a whole number, got 1.5"),
        ("seed: 1e3", "expected a whole number, got 1000.0: write 1000"),
        ("seed: null", "expected a whole number, got None"),
        ("seed: [1]", "expected a whole number, got [1]"),
        ("max_steps: soon", "expected a whole number or null, got 'soon'"),
        ("push_to_hub: 1", "expected true or false, got 1"),
        ("push_to_hub: yes", "expected true or false, got 'yes'"),
        ("kind: cosine", "expected one of linear, constant, got 'cosine'"),
        ("language: 12", 'expected text, got 12: put it in quotes, "12"'),
        ("files: one", "expected a list with text in each place, got 'one'"),
        ("files: [1]", "expected a list with text in each place, got [1]"),
        ("sizes: [a]", "expected a list with a whole number in each place or null, got ['a']"),
    ],
)
def test_a_value_of_the_wrong_type_in_the_file_names_line_key_and_type(capsys, tmp_path, line, expected):
    path = write(tmp_path, f"\n{line}\n")
    assert refusal(capsys, "--config", path) == f"{path}, line 2: {line.partition(':')[0]}: {expected}"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--learning_rate", "fast"], "--learning_rate: expected a number, got 'fast'"),
        (["--learning_rate", ""], "--learning_rate: expected a number, got ''"),
        (["--learning_rate"], "--learning_rate takes one value (a number), got none"),
        (["--learning_rate", "1", "2"], "--learning_rate takes one value (a number), got ['1', '2']"),
        (["--seed", "1.0"], "--seed: expected a whole number, got '1.0': write 1"),
        (["--seed", "null"], "--seed: expected a whole number, got 'null'"),
        (["--push_to_hub", "yes"], "--push_to_hub: expected true or false, got 'yes'"),
        (["--kind", "cosine"], "--kind: expected one of linear, constant, got 'cosine'"),
        (
            ["--seed", "1"],
            "--learning_rate is required: give the flag, or `learning_rate:` in a --config file",
        ),
        ([], "--learning_rate is required: give the flag, or `learning_rate:` in a --config file"),
        (["tiny.yaml"], "'tiny.yaml' belongs to no flag; write `--config tiny.yaml`"),
        (["--config"], "--config takes one file and stands once, got []"),
    ],
)
def test_a_wrong_command_line_names_the_flag_and_the_remedy(capsys, argv, expected):
    assert refusal(capsys, *argv) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("seed: [1\nlanguage: en\n", "line 2, column 9"),
        ("seed: 'one\n", "line 2, column 1"),
        ("seed: 1\n\tlanguage: en\n", "line 2, column 1"),
        ("a: b: c\n", "line 1, column 5"),
        ("language: !!python/name:os.system x\n", "line 1, column 11"),
        ("seed: 1\n---\nseed: 2\n", "line 2, column 1"),
        ("language: *nowhere\n", "line 1, column 11"),
    ],
)
def test_malformed_yaml_is_refused_with_file_line_and_column(capsys, tmp_path, text, place):
    path = write(tmp_path, text)
    assert refusal(capsys, "--config", path).startswith(f"{path}, {place}: not valid YAML: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file holds no options; write `key: value` lines"),
        (b"# nothing\n", "the file holds no options; write `key: value` lines"),
        (b"- seed\n- 1\n", "line 1: expected `key: value` lines, got a list"),
        (b"seed\n", "line 1: expected `key: value` lines, got 'seed'"),
        (b"seed: 1\nlanguage: \xff\xfe\n", "line 2: not UTF-8 text; save it as UTF-8"),
        (b"seed: 1\nlanguage: \x01\n", "line 2: a control character; delete it"),
        (b"seed: 1\nseed: 2\n", "line 2: `seed` stands twice in this file; keep one"),
        (b"speed:\n  seed: 1\n", "line 1: no option `speed`; options stand at the left margin, without"),
        (b"seed: " + b"[" * 5000, "brackets nested too deeply"),
    ],
)
def test_a_file_that_holds_no_recipe_says_why(capsys, tmp_path, content, expected):
    path = write(tmp_path, content)
    line = refusal(capsys, "--config", path)
    assert path in line and expected in line


def test_a_missing_file_or_a_folder_is_refused_with_the_path(capsys, tmp_path):
    write(tmp_path, "seed: 1\n", "tiny.yaml")
    missing = refusal(capsys, "--config", str(tmp_path / "tinny.yaml"))
    assert missing.endswith(f"no such file; did you mean {tmp_path / 'tiny.yaml'}?")
    assert refusal(capsys, "--config", str(tmp_path)).endswith("is a folder; name a YAML file in it")


def test_an_error_of_a_dataclass_names_the_line_it_came_from(capsys, tmp_path):
    path = write(tmp_path, "seed: 1\nlearning_rate: -1\n")
    assert refusal(capsys, "--config", path) == (
        f"{path}, line 2: learning_rate: learning_rate=-1.0 must be above 0"
    )
    assert refusal(capsys, "--learning_rate", "-2") == "learning_rate=-2.0 must be above 0"


def test_a_very_long_value_is_cut_so_that_place_and_remedy_stay(capsys):
    line = refusal(capsys, "--kind", "x" * 5000)
    assert line.startswith("--kind: expected one of linear, constant")
    line = refusal(capsys, "--config", "y" * 150 + "/" + "z" * 200 + ".yaml")
    assert line.startswith("--config yyy") and line.endswith("check the path")


def test_the_help_shows_every_option_with_its_comment_and_default(capsys):
    with pytest.raises(SystemExit) as ending:
        parse_options(Speed, Run, argv=["--help"], prog="pretrain.py")
    shown = " ".join(capsys.readouterr().out.split())
    assert ending.value.code == 0
    assert "required; peak rate, 100% of it" in shown
    assert "Share of the run spent rising. (type: float, default: 0.0)" in shown
    for name in ("config", "debug", "learning_rate", "kind", "seed", "push_to_hub", "files"):
        assert f"--{name}" in shown


def test_one_name_in_two_dataclasses_is_a_bug():
    @dataclass
    class Other:
        seed: int = 1

    with pytest.raises(AssertionError, match="seed stands in two dataclasses"):
        parse_options(Run, Other, argv=[])


AWKWARD = [
    "null",
    "~",
    "",
    "12",
    "1e3",
    "4e-4",
    "true",
    "no",
    "on",
    "2024-01-01",
    "0x1f",
    "a: b",
    "# c",
    "- d",
]


@pytest.mark.parametrize(
    "text", [*AWKWARD, " e ", "line\nbreak", "tab\t", "预训练 模型", "'q\"", "=", "<<", "[x"]
)
def test_a_resolved_recipe_reads_back_equal(tmp_path, text):
    options = (
        Speed(learning_rate=1e-7, warmup_ratio=1 / 3, kind="constant"),
        Run(run_name=text, language=text, files=[text, "甲"], sizes=[1, 2], output_dir=Path("输出/甲 乙")),
    )
    path = tmp_path / "recipe.yaml"
    save_resolved(options, path)
    assert load_resolved(path, Speed, Run) == options
    assert parse_options(Speed, Run, argv=["--config", str(path)]) == options
    # Other tools, which read YAML 1.1, see the same text.
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["run_name"] == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_resolved_recipe_holds_every_value_defaults_included():
    assert yaml.safe_load(resolve((Speed(learning_rate=1.0), Run()))) == {
        "learning_rate": 1.0,
        "warmup_ratio": 0.0,
        "kind": "linear",
        "seed": 0,
        "output_dir": "runs/one",
        "run_name": None,
        "max_steps": None,
        "push_to_hub": False,
        "files": [],
        "sizes": None,
        "language": "en",
    }


def test_a_resolved_recipe_with_another_key_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    save_resolved((Speed(learning_rate=1.0), Run()), path)
    with pytest.raises(ValueError, match=r"recipe\.yaml, line \d+: no option `seed`"):
        load_resolved(path, Speed)


def raise_it(error: BaseException):
    def main(argv: list[str] | None) -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("--corpus a.txt is empty:\nname another"), "--corpus a.txt is empty: name another"),
        (
            FileNotFoundError(2, "No such file or directory", "语料.txt"),
            "语料.txt: No such file or directory",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("a message of our own"), "a message of our own"),
    ],
)
def test_bad_input_in_a_recipe_ends_it_with_one_line(capsys, error, expected):
    with pytest.raises(SystemExit) as ending:
        run(raise_it(error), argv=[])
    assert ending.value.code == 2
    assert capsys.readouterr().err == f"{Path(sys.argv[0]).name}: error: {expected}\n"


def test_debug_shows_the_traceback_and_still_ends_with_2(capsys):
    with pytest.raises(SystemExit) as ending:
        run(raise_it(ValueError("bad")), argv=["--debug"])
    shown = capsys.readouterr().err
    assert ending.value.code == 2
    assert "Traceback" in shown and shown.splitlines()[-1].endswith("error: bad")
    assert read("--debug", "--learning_rate", "1")[0].learning_rate == 1.0


def test_ctrl_c_ends_with_130_and_bugs_keep_their_traceback(capsys):
    with pytest.raises(SystemExit) as ending:
        run(raise_it(KeyboardInterrupt()), argv=[])
    assert ending.value.code == 130
    with pytest.raises(KeyError):
        run(raise_it(KeyError("x")), argv=[])


@pytest.mark.parametrize(
    ("variables", "num_lines"),
    [
        ({}, 1),
        ({"RANK": "0", "LOCAL_RANK": "0"}, 1),
        ({"RANK": "1", "LOCAL_RANK": "1"}, 0),
        ({"RANK": "2"}, 0),
    ],
)
def test_only_the_main_process_prints_and_all_end_with_2(capsys, monkeypatch, variables, num_lines):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ending:
        parse_options(Speed, argv=[])
    assert ending.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == num_lines


def test_a_program_refuses_in_a_terminal_that_knows_only_ascii(tmp_path):
    script = tmp_path / "recipe.py"
    script.write_text(
        "from dataclasses import dataclass\n"
        "from hfbert.training.options import parse_options, run\n"
        "@dataclass\n"
        "class A:\n"
        "    seed: int = 0\n"
        "run(lambda argv: print(parse_options(A, argv=argv)))\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(script), "--seed", "第一"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "recipe.py: error: --seed: expected a whole number, got '\\u7b2c\\u4e00'\n"
