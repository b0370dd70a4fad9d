"""The `hfbert` command, through `main` with real files."""

import json
from pathlib import Path

import pytest
from transformers import BertTokenizer

from hfbert.cli import main

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "apples", "是", "苹", "果"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    folder = tmp_path / "分词器"
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(folder)
    return str(folder)


def test_tokenizer_check_reports_the_share_of_unknown_pieces(
    tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("Apples是苹果\n\nApples是梨", encoding="utf-8")
    main(["tokenizer", "check", tokenizer, str(tmp_path / "text.txt")])
    shown = capsys.readouterr().out
    assert "unknown" in shown and "0.14" in shown  # one of seven pieces: 梨


@pytest.mark.parametrize("arguments", [["no/such/folder", "text.txt"], ["TOKENIZER", "no/such/文本.txt"]])
def test_a_missing_file_is_one_line_and_exit_code_2(
    arguments: list[str], tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("Apples")
    arguments = [tokenizer if word == "TOKENIZER" else word for word in arguments]
    with pytest.raises(SystemExit) as ended:
        main(["tokenizer", "check", *arguments])
    assert ended.value.code == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and "no/such" in errors[0]


def test_report_prints_the_table_and_writes_it_with_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {"task": "cola", "metrics": {"accuracy": 0.5}, "main_metric": "accuracy", "baseline": {}}
    for name in ("甲", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results))
    main(["report", str(tmp_path / "甲"), str(tmp_path / "b"), "--output", str(tmp_path / "out.md")])
    shown = capsys.readouterr().out
    assert "| task | 甲 | b |" in shown and shown == (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "none")])
    assert ended.value.code == 2 and "no such folder" in capsys.readouterr().err


def test_help_names_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("tokenizer", "report", "predict"))
