"""`hfbert predict`: a line of JSON for each line that goes in, against the functions it calls."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_predict import PIECES, save

from hfbert import HFBertConfig, HFBertForPreTraining, HFBertForQuestionAnswering
from hfbert.cli import main
from hfbert.predict import answer, fill_mask, load_predictor, next_sentence


@pytest.fixture
def model(tmp_path: Path, tiny_config: dict[str, Any]) -> str:
    shape = tiny_config | {"vocab_size": len(PIECES), "initializer_range": 0.3}
    return save(tmp_path / "模型", HFBertForPreTraining(HFBertConfig(**shape)))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    main(["predict", *arguments])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_lines_of_text_become_lines_of_json_in_their_order(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a [MASK]", "深度 [MASK] 习\tb", "[MASK] " * 30]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8-sig")
    found = run(capsys, "fill_mask", model, str(tmp_path / "in.txt"), "--top_k", "2")
    assert found == json.loads(json.dumps(fill_mask(load_predictor("fill_mask", model), texts, 2)))


def test_pairs_come_with_a_tab_or_as_json(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.tsv").write_text("a b\tc d\n深\t学\n", encoding="utf-8")
    rows = [{"text": "a b", "text_pair": "c d"}, {"text": "深", "text_pair": "学"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = next_sentence(load_predictor("next_sentence", model), [("a b", "c d"), ("深", "学")])
    for name in ("in.tsv", "in.jsonl"):
        assert run(capsys, "next_sentence", model, str(tmp_path / name)) == expected


def test_questions_are_read_from_stdin_as_json(
    tmp_path: Path,
    tiny_config: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = tiny_config | {"vocab_size": len(PIECES), "initializer_range": 0.3}
    folder = save(tmp_path, HFBertForQuestionAnswering(HFBertConfig(**shape)))
    row = {"question": "a?", "context": "深度 a b c"}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(row) + "\n" + "b?\ta b\n"))
    found = run(capsys, "answer", folder)
    expected = answer(load_predictor("answer", folder), [("a?", "深度 a b c"), ("b?", "a b")])
    assert found == json.loads(json.dumps(expected))


def test_a_line_that_cannot_be_done_says_why_and_the_others_are_done(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"text": "no mask"}', '{"text": "a [MASK]"}', "[" * 100_000, "", '{"words": 1}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(SystemExit) as caught:
        main(["predict", "fill_mask", model, str(tmp_path / "in.jsonl")])
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert ["error" in row for row in rows] == [True, False, True, True, True]
    assert caught.value.code == 2 and "4 lines could not be done" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fill_mask", "MODEL", "none.txt"], "none.txt"),
        (["fill_mask", "none", "IN"], "none cannot be loaded"),
        (["tag", "MODEL", "IN"], "has no trained head for tag"),
        (["fill_mask", "MODEL", "IN", "--top_k", "0"], "--top_k 0"),
        (["fill_mask", "MODEL", "IN", "--batch_size", "0"], "batch_size=0"),
        (["fill_mask", "MODEL", "BROKEN"], "line 2: not UTF-8"),
    ],
)
def test_what_stops_the_work_is_one_line_and_exit_code_2(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "in.txt").write_text("a [MASK]\n")
    (tmp_path / "broken.txt").write_bytes(b"a [MASK]\n\xff\xfe\n")
    places = {"MODEL": model, "IN": str(tmp_path / "in.txt"), "BROKEN": str(tmp_path / "broken.txt")}
    with pytest.raises(SystemExit) as caught:
        main(["predict", *(places.get(one, one) for one in arguments)])
    shown = capsys.readouterr().err
    assert caught.value.code == 2 and message in shown and shown.count("\n") == 1


def test_the_real_command_prints_nothing_but_json(model: str, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("hfbert")), "predict", "fill_mask", model]
    done = subprocess.run(command, input="a [MASK] 深\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["masks"][0]["start"] == 2
