"""The pretraining recipe, through its real command and `main`, on a small English and Chinese corpus."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoTokenizer, BertForPreTraining, pipeline

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))
import pretrain  # noqa: E402
import pretrain_report  # noqa: E402

from hfbert import cli  # noqa: E402
from hfbert.training.checkpoint import latest_checkpoint, load_training_state  # noqa: E402
from hfbert.training.loop import STATE_FILE  # noqa: E402
from hfbert.training.options import run  # noqa: E402
from hfbert.training.report import read_metrics  # noqa: E402

ENGLISH = ("the cat", "a teacher", "my friend"), ("reads", "likes", "sees"), ("books", "tea", "rain")
CHINESE = ("我", "老师", "朋友", "猫"), ("喜欢", "看见", "学习"), ("深度学习", "苹果", "音乐")
SMALL = {
    "vocab_size": 120,
    "max_length": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "global_batch_size": 8,
    "max_steps": 6,
    "learning_rate": 1e-3,
    "logging_steps": 2,
    "eval_steps": 3,
    "save_steps": 3,
    "validation_split_percentage": 10,
    "report_to": "none",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty documents of five sentences, every third one Chinese."""
    draw = random.Random(0)
    documents = []
    for number in range(60):
        words, gap, end = (CHINESE, "", "。") if number % 3 == 0 else (ENGLISH, " ", ".")
        documents.append("\n".join(gap.join(map(draw.choice, words)) + end for _ in range(5)))
    path = tmp_path_factory.mktemp("语料") / "text.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


def write_recipe(folder: Path, text: Path, **changes: object) -> Path:
    recipe = SMALL | {"corpus": str(text), "output_dir": str(folder / "run")} | changes
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")
    return path


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    accelerate = Path(sys.executable).with_name("accelerate")
    command = [str(accelerate), "launch", "--config_file", str(ROOT / "recipes/accelerate/cpu.yaml")]
    command += [str(ROOT / "recipes/pretrain.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> tuple[Path, str]:
    """The folder of a run by the real command, and what its screen showed."""
    folder = tmp_path_factory.mktemp("finished")
    done = launch("--config", str(write_recipe(folder, corpus, report_to="tensorboard")))
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "run", done.stdout


def test_the_command_leaves_recipe_metrics_curves_and_a_model_for_the_hub(finished: tuple[Path, str]) -> None:
    run_folder, _ = finished
    for name in ("recipe.yaml", "metrics.jsonl", "curves.png", "model/model.safetensors"):
        assert (run_folder / name).stat().st_size > 0, name
    code = {"configuration_hfbert.py", "modeling_hfbert.py"}
    assert {path.name for path in (run_folder / "model").glob("*.py")} == code
    assert list((run_folder / "logs").rglob("events.out.tfevents*"))
    assert not list(run_folder.glob(".*"))
    card = (run_folder / "model/README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers")
    assert "| corpus | text.txt: 60 documents" in card
    assert "/" not in re.findall(r"corpus \| (.*)", card)[0]  # where it lay is nobody's business


def test_every_line_of_the_metrics_has_the_promised_names(finished: tuple[Path, str]) -> None:
    lines = (finished[0] / "metrics.jsonl").read_text().splitlines()
    rows = {row["step"]: row for row in map(json.loads, lines)}
    assert list(rows) == [2, 3, 4, 6]
    promised = {"loss", "masked_loss", "next_sentence_loss", "learning_rate", "tokens_per_second"}
    assert promised <= set(rows[2])
    evaluated = {"masked_loss", "masked_accuracy", "next_sentence_accuracy"}
    evaluated |= {"masked_accuracy_baseline", "next_sentence_accuracy_baseline"}
    assert {f"eval_{name}" for name in evaluated} <= set(rows[3]) & set(rows[6])


def test_the_screen_shows_what_was_read_the_table_and_ten_guesses_at_most(finished: tuple[Path, str]) -> None:
    screen = finished[1]
    shown = (
        "documents: 60",
        "sentences: 300",
        "next-sentence pairs:",
        "masked accuracy",
        "baseline",
        "[MASK]",
    )
    for words in shown:
        assert words in screen, words


def test_the_saved_model_opens_with_auto_classes_with_stock_bert_and_fills_masks(
    finished: tuple[Path, str],
) -> None:
    folder = finished[0] / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForPreTraining.from_pretrained(folder).eval()
    stock = BertForPreTraining.from_pretrained(folder).eval()
    batch = tokenizer("我喜欢音乐。", "the cat reads books.", return_tensors="pt")
    with torch.no_grad():
        ours, theirs = model(**batch), stock(**batch)
    for name in ("prediction_logits", "seq_relationship_logits"):
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=0)
    guesses = pipeline("fill-mask", str(folder))("the cat [MASK] tea.")
    assert len(guesses) == 5 and all(0 < guess["score"] < 1 for guess in guesses)


def test_the_same_command_again_trains_no_further_and_shows_the_same_table(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder, screen = finished
    before = (run_folder / "metrics.jsonl").read_bytes()
    pretrain.main(["--config", str(run_folder / "recipe.yaml")])
    again = capsys.readouterr().out
    assert (run_folder / "metrics.jsonl").read_bytes() == before
    table = [line for line in screen.splitlines() if "accuracy" in line]
    assert table == [line for line in again.splitlines() if "accuracy" in line]


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path: Path, corpus: Path) -> None:
    config = str(write_recipe(tmp_path, corpus, save_total_limit=4))
    pretrain.main(["--config", config])
    whole = (tmp_path / "run/model/model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "run/checkpoint-6")
    shutil.rmtree(tmp_path / "run/model")
    pretrain.main(["--config", config])
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == whole


def test_guesses_show_chinese_without_the_spaces_of_decoding() -> None:
    decoded = "我 喜 欢 [MASK] 度 学 习 ， the [MASK] cat [MASK] 。"
    assert pretrain_report.BETWEEN_WIDE.sub("", decoded) == "我喜欢[MASK]度学习， the [MASK] cat [MASK]。"


def test_an_existing_tokenizer_can_be_used(tmp_path: Path, corpus: Path, finished: tuple[Path, str]) -> None:
    config = write_recipe(tmp_path, corpus, tokenizer=str(finished[0] / "model"), max_steps=1)
    pretrain.main(["--config", str(config)])
    ours = AutoTokenizer.from_pretrained(tmp_path / "run/model")
    assert ours.get_vocab() == AutoTokenizer.from_pretrained(finished[0] / "model").get_vocab()


def test_one_hundred_percent_mask_is_one_flag_away(tmp_path: Path, corpus: Path) -> None:
    config = write_recipe(tmp_path, corpus, max_steps=1)
    pretrain.main(["--config", str(config), "--mask_replace_prob", "1.0", "--random_replace_prob", "0.0"])
    assert yaml.safe_load((tmp_path / "run/recipe.yaml").read_text())["mask_replace_prob"] == 1.0


BAD_INPUT = {
    "missing corpus": ({"corpus": "no/such/文本.txt"}, ["no/such/文本.txt", "does not exist"]),
    "empty corpus": ({"corpus": "EMPTY"}, ["empty.txt"]),
    "wrong encoding": ({"corpus": "GB18030"}, ["gb18030.txt", "line 1", "UTF-8"]),
    "too few documents": ({"corpus": "SINGLE"}, ["documents", "blank line"]),
    "unknown option": ({"learning_rat": 1}, ["learning_rat", "learning_rate", "recipe.yaml"]),
    "wrong type": ({"max_length": "many"}, ["max_length", "recipe.yaml"]),
    "vocabulary too small": ({"vocab_size": 4}, ["vocab_size"]),
    "length too small for a pair": ({"max_length": 3}, ["max_length"]),
    "indivisible batch": ({"per_device_train_batch_size": 3}, ["global_batch_size=8", "=3"]),
    "fp16 on a CPU": ({"fp16": True}, ["fp16 needs a GPU"]),
    "two budgets": ({"max_minutes": 1}, ["max_steps", "max_minutes"]),
    "rates above one": ({"mask_replace_prob": 0.9, "random_replace_prob": 0.2}, ["mask_replace_prob"]),
    "heads that do not divide": ({"num_attention_heads": 3}, ["num_attention_heads=3"]),
    "missing tokenizer": ({"tokenizer": "no/such/分词器"}, ["--tokenizer", "no/such/分词器"]),
    "a folder nobody can make": ({"output_dir": "/proc/no/输出"}, ["--output_dir", "cannot be made"]),
    "a tracker that is not installed": ({"report_to": "trackio"}, ["report_to=trackio", "pip install"]),
    "a file as output folder": ({"output_dir": "FILE"}, ["--output_dir"]),
    "a folder that holds other files": ({"output_dir": "OTHER"}, ["--output_dir", "other files"]),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_gets_one_line_and_exit_code_2(
    name: str, tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, words = BAD_INPUT[name]
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "gb18030.txt").write_bytes("深度学习很有趣。".encode("gb18030"))
    (tmp_path / "single.txt").write_text("One. Two. Three.\n\nFour. Five.")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    places = {"EMPTY": "empty.txt", "GB18030": "gb18030.txt", "SINGLE": "single.txt"}
    places |= {"FILE": "single.txt", "OTHER": "other"}
    changes = {
        key: str(tmp_path / places[value]) if value in places else value for key, value in changes.items()
    }
    before = sorted(tmp_path.rglob("*"))
    config = write_recipe(tmp_path, corpus, **changes)
    with pytest.raises(SystemExit) as ended:
        run(pretrain.main, ["--config", str(config)])
    errors = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2
    assert len(errors) == 1 and len(errors[0]) <= 300, errors
    assert all(word in errors[0] for word in words), errors[0]
    assert sorted(tmp_path.rglob("*")) == sorted([*before, config]), "something was left behind"


def test_a_folder_with_a_run_of_another_recipe_is_refused_naming_what_differs(
    tmp_path: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(pretrain.main, ["--config", str(finished[0] / "recipe.yaml"), "--learning_rate", "2e-3"])
    error = capsys.readouterr().err
    assert "learning_rate: 0.001 there, 0.002 here" in error and "--overwrite_output_dir" in error


def test_a_typing_error_in_the_real_command_gets_one_line(tmp_path: Path, corpus: Path) -> None:
    arguments = ["--config", str(write_recipe(tmp_path, corpus)), "--max_stepz", "3"]
    script = str(ROOT / "recipes/pretrain.py")
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    line = "pretrain.py: error: --max_stepz: no such option; did you mean `--max_steps`?"
    assert done.stderr.strip().splitlines() == [line]
    # `accelerate launch` adds a traceback of its own, unless told to be quiet, and ends with 1.
    assert line in launch(*arguments).stderr


@pytest.mark.slow
def test_two_processes_reach_the_weights_of_one(tmp_path: Path, corpus: Path) -> None:
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "logging_steps": 1}
    settings |= {"per_device_train_batch_size": 2, "num_train_epochs": 2, "max_steps": None}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        config = str(write_recipe(folder, corpus, **settings))
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        command += [str(ROOT / "recipes/pretrain.py"), "--config", config]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        checkpoint, _ = latest_checkpoint(folder / "run")
        state = load_training_state(checkpoint / STATE_FILE)
        assert state["environment"]["num_processes"] == processes
    one, two = (read_metrics(tmp_path / part / "run/metrics.jsonl") for part in "12")
    assert len(one) == len(two) > 5
    for alone, together in zip(one, two, strict=True):
        assert together["learning_rate"] == alone["learning_rate"]
        assert together["loss"] == pytest.approx(alone["loss"], abs=2e-6)
    evaluated = [name for name in one[-1] if name.startswith("eval_")]
    assert evaluated and {name: two[-1][name] for name in evaluated} == pytest.approx(
        {name: one[-1][name] for name in evaluated}, abs=2e-6
    )
    weights = [load_file(tmp_path / part / "run/model/model.safetensors") for part in "12"]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("masked_span", ["word", "ngram"])
def test_whole_words_are_masked_with_the_words_of_rjieba_or_a_file_of_ones_own(
    tmp_path: Path, corpus: Path, masked_span: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = corpus.read_text(encoding="utf-8")
    (tmp_path / "words.txt").write_text(text.replace("深度学习", " 深度学习 "), encoding="utf-8")
    more = {"whole_word_mask": True, "masked_span": masked_span}
    if masked_span == "ngram":
        more["segmentation_file"] = str(tmp_path / "words.txt")
    pretrain.main(["--config", str(write_recipe(tmp_path, corpus, **more))])
    starts = np.load(tmp_path / "run/text/corpus/word_starts.npy")
    tokens = np.load(tmp_path / "run/text/corpus/tokens.npy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run/model")
    ids = tokenizer.convert_tokens_to_ids(list("深度学习"))
    places = [i for i in range(len(tokens) - 3) if tokens[i : i + 4].tolist() == ids]
    inside = [False, False, False] if masked_span == "ngram" else [False, True, False]  # rjieba: 深度 学习
    assert places and all(starts[i + 1 : i + 4].tolist() == inside for i in places)
    assert "does not fit" not in capsys.readouterr().out


def test_a_segmentation_out_of_step_with_the_corpus_ends_with_one_line(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words.txt").write_text("the cat\n\n我\n", encoding="utf-8")
    recipe = str(write_recipe(tmp_path, corpus, segmentation_file=str(tmp_path / "words.txt")))
    for arguments, message in (
        ([], "--segmentation_file is of no use without --whole_word_mask true"),
        (["--whole_word_mask", "true"], "--segmentation_file has 2 documents and --corpus 60"),
    ):
        with pytest.raises(SystemExit) as caught:
            run(pretrain.main, ["--config", recipe, *arguments])
        shown = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
        assert caught.value.code == 2 and len(shown) == 1 and message in shown[0] and len(shown[0]) <= 300
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("objective", ["sop", "none"])
def test_other_objectives_for_pairs_run_to_the_end(
    tmp_path: Path, corpus: Path, objective: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain.main(["--config", str(write_recipe(tmp_path, corpus, pair_objective=objective))])
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert ("eval_next_sentence_accuracy" in last) is (objective == "sop")
    shown = capsys.readouterr().out
    assert ("order pairs" in shown) is (objective == "sop") and ("masked LM alone" in shown) is (
        objective == "none"
    )


def test_a_run_goes_on_from_a_model_with_longer_rows_and_another_vocabulary(
    tmp_path: Path, corpus: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    start = finished[0] / "model"
    vocabulary = (start / "vocab.txt").read_text(encoding="utf-8") + "深度学习\nteacher's\n"
    (tmp_path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    settings = {name: value for name, value in SMALL.items() if name not in names}
    settings |= {"max_length": 48, "corpus": str(corpus), "output_dir": str(tmp_path / "run")}
    settings |= {"model_name_or_path": str(start), "tokenizer": str(tmp_path / "vocab.txt"), "max_steps": 2}
    (tmp_path / "general.txt").write_text(
        "the cat reads. 我喜欢音乐。\nmy friend sees rain.\n\na teacher. books."
    )
    settings["general_corpus"] = str(tmp_path / "general.txt")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    pretrain.main(["--config", str(tmp_path / "recipe.yaml")])
    shown = capsys.readouterr().out
    assert "2 of them new to the model" in shown and "before training, held out: loss" in shown
    before = float(re.findall(r"before training.* general masked loss ([\d.]+)", shown)[0])
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["eval_general_masked_loss"] != before and "general masked accuracy" in shown
    model = AutoModelForPreTraining.from_pretrained(tmp_path / "run/model")
    assert model.config.max_position_embeddings == 48 and model.config.hidden_size == 16
    with pytest.raises(SystemExit):
        run(pretrain.main, ["--config", str(tmp_path / "recipe.yaml"), "--hidden_size", "64"])
    assert "hidden_size comes from --model_name_or_path" in capsys.readouterr().err


def test_a_position_table_may_be_longer_than_the_rows_of_a_first_phase(tmp_path: Path, corpus: Path) -> None:
    pretrain.main(["--config", str(write_recipe(tmp_path, corpus, max_position_embeddings=64, max_steps=1))])
    config = AutoModelForPreTraining.from_pretrained(tmp_path / "run/model").config
    assert config.max_position_embeddings == 64


def test_a_run_from_shards_is_the_run_from_the_text(
    tmp_path: Path, corpus: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    build = [
        "data",
        "build",
        str(corpus),
        str(tmp_path / "shards"),
        "--tokenizer",
        str(finished[0] / "model"),
    ]
    cli.main(build)
    pretrain.main(["--config", str(write_recipe(tmp_path, tmp_path / "shards"))])
    ours = load_file(tmp_path / "run/model/model.safetensors")
    theirs = load_file(finished[0] / "model/model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not (tmp_path / "run" / "text").exists()
    with pytest.raises(SystemExit):
        run(
            pretrain.main,
            [
                "--config",
                str(tmp_path / "recipe.yaml"),
                "--whole_word_mask",
                "true",
                "--output_dir",
                str(tmp_path / "other"),
            ],
        )
    assert "knows no words: build it with --whole_word_mask" in capsys.readouterr().err


def test_a_run_of_a_version_without_some_option_goes_on_unless_that_option_is_set(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = str(write_recipe(tmp_path, corpus, max_steps=2))
    pretrain.main(["--config", recipe])
    recorded = tmp_path / "run" / "recipe.yaml"
    lines = recorded.read_text(encoding="utf-8").splitlines(keepends=True)
    recorded.write_text("".join(line for line in lines if not line.startswith("pair_objective")))
    pretrain.main(["--config", recipe])
    with pytest.raises(SystemExit):
        run(pretrain.main, ["--config", recipe, "--pair_objective", "sop"])
    assert "pair_objective: nsp there, sop here" in capsys.readouterr().err
