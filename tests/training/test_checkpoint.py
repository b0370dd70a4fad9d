"""A checkpoint is whole or not there; whatever happens to a file is found and named."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hfbert.training.checkpoint import (
    capture_random_state,
    checkpoint_step,
    latest_checkpoint,
    load_training_state,
    prune_checkpoints,
    restore_random_state,
    save_checkpoint,
    save_training_state,
    verify_checkpoint,
)

CONTENT = {
    "model.safetensors": b"weights" * 100,
    "config.json": b"{}",
    "分词器/vocab.txt": "甲\n乙\n".encode(),
}


def write_content(folder: Path) -> None:
    for name, content in CONTENT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def save(output_dir: Path, *steps: int) -> None:
    for step in steps:
        save_checkpoint(output_dir / f"checkpoint-{step}", write_content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail(error: BaseException):
    def write(folder: Path) -> None:
        write_content(folder)
        raise error

    return write


def test_a_saved_checkpoint_holds_what_was_written_and_verifies(tmp_path):
    folder = tmp_path / "输出" / "checkpoint-20"
    save_checkpoint(folder, write_content)
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert verify_checkpoint(folder) is None
    assert names(folder.parent) == ["checkpoint-20"]
    assert latest_checkpoint(folder.parent) == (folder, [])


def test_the_manifest_lists_sizes_and_the_hashes_sha256sum_gives(tmp_path):
    save(tmp_path, 1)
    manifest = json.loads((tmp_path / "checkpoint-1" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format_version"] == 1
    assert {name: entry["size"] for name, entry in manifest["files"].items()} == {
        name: len(content) for name, content in CONTENT.items()
    }
    # printf '{}' | sha256sum
    known = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert manifest["files"]["config.json"]["sha256"] == known


def truncate(folder: Path) -> str:
    (folder / "model.safetensors").write_bytes(CONTENT["model.safetensors"][:-1])
    return "model.safetensors has 699 bytes instead of 700"


def flip(folder: Path) -> str:
    content = bytearray(CONTENT["model.safetensors"])
    content[350] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    return "model.safetensors was changed"


def empty(folder: Path) -> str:
    (folder / "config.json").write_bytes(b"")
    return "config.json has 0 bytes instead of 2"


def delete(folder: Path) -> str:
    (folder / "分词器" / "vocab.txt").unlink()
    return "vocab.txt is missing"


def add(folder: Path) -> str:
    (folder / "pytorch_model.bin").write_bytes(b"x")
    return "pytorch_model.bin is not in manifest.json"


def rename(folder: Path) -> str:
    (folder / "config.json").rename(folder / "Config.json")
    return "config.json is missing"


def swap(folder: Path) -> str:
    (folder / "config.json").write_bytes(b"[]")
    return "config.json was changed"


def turn_into_a_folder(folder: Path) -> str:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    return "config.json is missing"


def delete_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "manifest.json is missing"


def break_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_text("{")
    return "manifest.json is damaged"


def raise_version(folder: Path) -> str:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("1,", "2,", 1), encoding="utf-8")
    return "manifest.json was changed, or is of another version"


MUTATIONS = [truncate, flip, empty, delete, add, rename, swap, turn_into_a_folder]
MUTATIONS += [delete_manifest, break_manifest, raise_version]


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_any_change_is_found_named_and_passed_over(tmp_path, mutate):
    save(tmp_path, 10, 20)
    expected = mutate(tmp_path / "checkpoint-20")
    problem = verify_checkpoint(tmp_path / "checkpoint-20")
    assert problem is not None and expected in problem and "\n" not in problem
    assert latest_checkpoint(tmp_path) == (
        tmp_path / "checkpoint-10",
        [f"checkpoint-20 is not complete and is passed over: {problem}"],
    )


def test_no_flipped_byte_of_the_manifest_goes_unseen(tmp_path):
    save(tmp_path, 1)
    manifest = tmp_path / "checkpoint-1" / "manifest.json"
    whole = manifest.read_bytes()
    for position in range(len(whole)):
        for bit in (1, 32):
            changed = bytearray(whole)
            changed[position] ^= bit
            manifest.write_bytes(changed)
            assert verify_checkpoint(manifest.parent) is not None, (position, bit)


@pytest.mark.parametrize(
    "text", ["[]", "null", "3", '{"files": []}', '{"files": {"a": 3}}', '{"files": {"a": {}}}']
)
def test_a_manifest_of_another_shape_is_damaged_not_a_crash(tmp_path, text):
    save(tmp_path, 1)
    (tmp_path / "checkpoint-1" / "manifest.json").write_text(text)
    assert "manifest.json is damaged" in str(verify_checkpoint(tmp_path / "checkpoint-1"))


def test_the_latest_is_the_highest_step_not_the_last_name(tmp_path):
    save(tmp_path, 90, 1000, 200)
    (tmp_path / "checkpoint-9999").write_text("a file")
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / ".checkpoint-5000.partial").mkdir()
    assert latest_checkpoint(tmp_path) == (tmp_path / "checkpoint-1000", [])
    assert checkpoint_step(tmp_path / "checkpoint-1000") == 1000


def test_no_folder_and_no_checkpoint_give_none(tmp_path):
    assert latest_checkpoint(tmp_path / "nowhere") == (None, [])
    assert latest_checkpoint(tmp_path) == (None, [])


@pytest.mark.parametrize("error", [ValueError("bad weights"), RuntimeError("a bug")])
def test_a_failing_write_leaves_nothing_behind_and_is_raised_as_it_is(tmp_path, error):
    save(tmp_path, 10)
    with pytest.raises(type(error), match=str(error)):
        save_checkpoint(tmp_path / "checkpoint-20", fail(error))
    assert names(tmp_path) == ["checkpoint-10"]


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), Exception("Error while serializing: I/O error (os error 28)")],
)
def test_a_full_disk_names_the_path_and_the_bytes_and_keeps_the_old_one(tmp_path, error):
    save(tmp_path, 10)
    with pytest.raises(OSError, match="No space left on device") as raised:
        save_checkpoint(tmp_path / "checkpoint-20", fail(error))
    assert raised.value.errno == 28
    message = str(raised.value)
    assert f"{tmp_path / 'checkpoint-20'} cannot be saved" in message
    assert "710 bytes written" in message and "needed by checkpoint-10, which stays" in message
    assert names(tmp_path) == ["checkpoint-10"]
    assert verify_checkpoint(tmp_path / "checkpoint-10") is None


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"file/checkpoint-1 cannot be saved: Not a directory"):
        save_checkpoint(tmp_path / "file" / "checkpoint-1", write_content)


def test_saving_a_step_again_replaces_it_even_if_it_was_damaged(tmp_path):
    save(tmp_path, 10)
    truncate(tmp_path / "checkpoint-10")
    save(tmp_path, 10)
    assert latest_checkpoint(tmp_path) == (tmp_path / "checkpoint-10", [])
    assert names(tmp_path) == ["checkpoint-10"]


def test_a_checkpoint_set_aside_by_a_killed_replacement_comes_back(tmp_path):
    save(tmp_path, 10)
    (tmp_path / "checkpoint-10").rename(tmp_path / ".checkpoint-10.replaced")
    assert latest_checkpoint(tmp_path) == (tmp_path / "checkpoint-10", [])


def test_pruning_keeps_the_newest_complete_ones_and_clears_leftovers(tmp_path):
    save(tmp_path, 10, 20, 30, 40, 100)
    delete(tmp_path / "checkpoint-40")
    (tmp_path / ".checkpoint-110.partial").mkdir()
    (tmp_path / ".checkpoint-100.replaced").mkdir()
    (tmp_path / "model").mkdir()
    prune_checkpoints(tmp_path, keep=2)
    assert names(tmp_path) == ["checkpoint-100", "checkpoint-30", "model"]
    prune_checkpoints(tmp_path, keep=5)
    assert names(tmp_path) == ["checkpoint-100", "checkpoint-30", "model"]


def test_pruning_never_removes_the_newest_complete_one_nor_anything_newer(tmp_path):
    save(tmp_path, 10, 20, 30)
    flip(tmp_path / "checkpoint-30")
    prune_checkpoints(tmp_path, keep=1)
    assert names(tmp_path) == ["checkpoint-20", "checkpoint-30"]
    flip(tmp_path / "checkpoint-20")
    prune_checkpoints(tmp_path, keep=1)
    assert names(tmp_path) == ["checkpoint-20", "checkpoint-30"]


def test_keeping_less_than_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match="save_total_limit=0"):
        prune_checkpoints(tmp_path, keep=0)


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


KILLED = """
import sys, time
from pathlib import Path
from hfbert.training import checkpoint
def write(folder):
    (folder / "config.json").write_text("{}")
    if sys.argv[2] == "writing": print("ready", flush=True); time.sleep(60)
if sys.argv[2] == "sealed":
    checkpoint._move_into_place = lambda partial, folder: (print("ready", flush=True), time.sleep(60))
checkpoint.save_checkpoint(Path(sys.argv[1]) / "checkpoint-20", write)
"""


@pytest.mark.parametrize("moment", ["writing", "sealed"])
def test_a_process_killed_while_saving_leaves_the_previous_checkpoint_as_the_latest(tmp_path, moment):
    save(tmp_path, 10)
    process = start(KILLED, tmp_path, moment)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert names(tmp_path) == [".checkpoint-20.partial", "checkpoint-10"]
    assert latest_checkpoint(tmp_path) == (tmp_path / "checkpoint-10", [])
    save(tmp_path, 20)
    prune_checkpoints(tmp_path, keep=1)
    assert names(tmp_path) == ["checkpoint-20"]


REPEATED = """
import sys
from pathlib import Path
from hfbert.training.checkpoint import prune_checkpoints, save_checkpoint
print("ready", flush=True)
for step in range(2, 10_000):
    save_checkpoint(Path(sys.argv[1]) / f"checkpoint-{step}", lambda f: (f / "a").write_bytes(bytes(100_000)))
    prune_checkpoints(Path(sys.argv[1]), keep=1)
"""


def test_killed_at_any_moment_of_saving_and_pruning_a_complete_checkpoint_is_found(tmp_path):
    chance = random.Random(0)
    save(tmp_path, 1)
    process = start(REPEATED, tmp_path)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for _ in range(20):
        time.sleep(chance.uniform(0.0, 0.05))
        process.send_signal(signal.SIGSTOP)  # what is on the disk now is what a kill would leave
        listed = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
        assert any(verify_checkpoint(path) is None for path in listed), names(tmp_path)
        process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait(timeout=60)
    found, _ = latest_checkpoint(tmp_path)
    assert found is not None


FULL = """
import resource, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from hfbert.training.checkpoint import save_checkpoint, save_training_state
from hfbert.training.options import run
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
big = {"a": torch.zeros(100_000)}
for write in (
    lambda folder: save_training_state(folder / "state.pt", big),
    lambda folder: save_file(big, folder / "model.safetensors"),
    lambda folder: (folder / "vocab.txt").write_text("x" * 400_000),
):
    try:
        run(lambda argv: save_checkpoint(Path(sys.argv[1]) / "checkpoint-20", write))
    except SystemExit as ending:
        print(ending.code)
"""


def test_a_file_that_does_not_fit_ends_in_one_line_and_the_old_checkpoint_stays(tmp_path):
    save(tmp_path, 10)
    stdout, stderr = start(FULL, tmp_path).communicate(timeout=60)
    assert stdout == "2\n2\n2\n"
    lines = stderr.splitlines()
    assert len(lines) == 3  # by torch, by safetensors, by Python
    assert all("checkpoint-20 cannot be saved: File too large" in line for line in lines)
    assert all(len(line) <= 300 for line in lines)
    assert names(tmp_path) == ["checkpoint-10"]
    assert latest_checkpoint(tmp_path) == (tmp_path / "checkpoint-10", [])


def make_trained(seed: int, fused: bool) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.LayerNorm(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), fused=fused)
    train(model, optimizer, 3)
    return model, optimizer


def train(model: nn.Module, optimizer: torch.optim.AdamW, num_steps: int) -> list[float]:
    losses = []
    for _ in range(num_steps):
        loss = model(torch.randn(8, 5)).pow(3).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() + random.random())
    return losses


def assert_same(one: object, other: object) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one == other


@pytest.mark.parametrize("fused", [False, True])
def test_the_training_state_round_trips_bit_for_bit(tmp_path, fused):
    _, optimizer = make_trained(0, fused)
    state = {
        "optimizer": optimizer.state_dict(),
        "random": capture_random_state(),
        "position": {"step": 3, "seconds": 0.1, "run": "预训练", "scaler": None, "done": False},
    }
    path = tmp_path / "状态.pt"
    save_training_state(path, state)
    assert_same(load_training_state(path), state)


def test_training_goes_on_bit_for_bit_from_a_restored_state(tmp_path):
    model, optimizer = make_trained(0, fused=True)
    state = {"optimizer": optimizer.state_dict(), "random": capture_random_state()}
    save_training_state(tmp_path / "state.pt", state)
    save_file(model.state_dict(), tmp_path / "weights")
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    uninterrupted = train(model, optimizer, 5)

    resumed, resumed_optimizer = make_trained(99, fused=True)
    loaded = load_training_state(tmp_path / "state.pt")
    resumed.load_state_dict(weights)
    resumed_optimizer.load_state_dict(loaded["optimizer"])
    restore_random_state(loaded["random"])
    assert train(resumed, resumed_optimizer, 5) == uninterrupted
    assert_same(dict(resumed.state_dict()), dict(model.state_dict()))


def test_what_could_not_be_loaded_safely_is_not_saved(tmp_path):
    with pytest.raises(AssertionError, match=r"state\['position'\]\[0\] is a PosixPath"):
        save_training_state(tmp_path / "state.pt", {"position": [Path("a")]})
    assert names(tmp_path) == []


class Touch:
    """Creates a file when it is unpickled by a loader that runs code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_code_in_a_state_file_is_refused_and_not_run(tmp_path):
    torch.save({"optimizer": Touch(tmp_path / "ran")}, tmp_path / "state.pt")
    with pytest.raises(ValueError, match=r"state\.pt holds no training state"):
        load_training_state(tmp_path / "state.pt")
    assert names(tmp_path) == ["state.pt"]


@pytest.mark.parametrize("content", [b"", b"not a state", b"PK\x03\x04" + bytes(50)])
def test_a_damaged_state_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"state\.pt holds no training state"):
        load_training_state(tmp_path / "state.pt")
    with pytest.raises(FileNotFoundError):
        load_training_state(tmp_path / "nowhere.pt")
