"""Turn a run's state into a checkpoint folder that is either complete or not there, and find it again.

save_checkpoint(run / "checkpoint-200", write)  ->  run/checkpoint-200/{..., manifest.json}
latest_checkpoint(run)                          ->  (run / "checkpoint-200", [])

A checkpoint is written into a hidden folder beside, synced, listed with sizes and hashes in manifest.json,
verified, and only then renamed. A process killed at any moment leaves the previous checkpoint as the latest.
"""

import errno
import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import torch

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_NAME = re.compile(r"checkpoint-([0-9]+)")
_PLAIN_TYPES = (torch.Tensor, int, float, str, bool, type(None))


def save_checkpoint(folder: Path, write: Callable[[Path], None]) -> None:
    """Write `folder` (output_dir/checkpoint-N) whole or not at all; `write` fills the folder it is given.

    An older folder of the same name is replaced. OSError names the path and the bytes written and free; then
    the partial folder is gone and all older checkpoints stand.
    """
    partial = _beside(folder, "partial")
    _remove(partial)
    try:
        partial.mkdir(parents=True)
        write(partial)
        _seal(partial)
        _move_into_place(partial, folder)
    except Exception as error:
        problem = _as_os_error(error)
        if problem is None:
            _remove(partial)
            raise
        message = _explain(folder, partial, problem)
        _remove(partial)
        raise OSError(problem.errno or errno.EIO, message) from error


def verify_checkpoint(folder: Path) -> str | None:
    """None for a complete checkpoint, else one line that says which file is wrong and how."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    try:
        recorded = (folder / MANIFEST).read_bytes()
        files = json.loads(recorded)["files"]
        listed = {name: (entry["size"], entry["sha256"]) for name, entry in files.items()}
    except FileNotFoundError:
        return f"{folder / MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{folder / MANIFEST} is damaged"
    try:
        return _first_difference(folder, listed) or _manifest_difference(folder, recorded, listed)
    except OSError as error:
        return f"{error.filename or folder} cannot be read: {error.strerror}"


def latest_checkpoint(output_dir: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and one line for each newer one that was passed over, newest first."""
    _restore_replaced(output_dir)
    passed_over: list[str] = []
    for folder in reversed(_list_checkpoints(output_dir)):
        problem = verify_checkpoint(folder)
        if problem is None:
            return folder, passed_over
        passed_over.append(f"{folder.name} is not complete and is passed over: {problem}")
    return None, passed_over


def prune_checkpoints(output_dir: Path, keep: int) -> None:
    """Remove all but the `keep` newest complete checkpoints, oldest first, and what killed processes left.

    Call it after a save. Nothing newer than the newest complete checkpoint is touched, and without a complete
    one no checkpoint at all. ValueError if `keep` is below 1.
    """
    if keep < 1:
        raise ValueError(f"save_total_limit={keep} must be 1 or more")
    newest, _ = latest_checkpoint(output_dir)
    for leftover in _list_leftovers(output_dir):
        _remove(leftover)
    if newest is None:
        return
    checkpoints = _list_checkpoints(output_dir)
    kept, doomed = 1, []
    for folder in reversed(checkpoints[: checkpoints.index(newest)]):
        if kept < keep and verify_checkpoint(folder) is None:
            kept += 1
        else:
            doomed.append(folder)
    for folder in reversed(doomed):
        shutil.rmtree(folder)


def checkpoint_step(folder: Path) -> int:
    """200 for `checkpoint-200`; ValueError for another name."""
    found = _NAME.fullmatch(folder.name)
    if found is None:
        raise ValueError(f"{folder} is not named checkpoint-<step>")
    return int(found[1])


def save_training_state(path: Path, state: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, strings and None, such as an optimizer's state.

    Those types load with `weights_only` on any version, so anything else is an error here, not at resume.
    """
    _assert_plain(state, "state")
    with path.open("wb") as file:
        recorder = _ErrorRecorder(file)
        try:
            torch.save(state, recorder)  # type: ignore[arg-type]
        except RuntimeError:
            # torch reports a full disk as "unexpected pos 704 vs 598": raise what the file said.
            if recorder.error is None:
                raise
            raise recorder.error from None


def load_training_state(path: Path) -> dict[str, Any]:
    """Read back `save_training_state`, tensors on the CPU; no code in the file is run.

    ValueError names a file that is damaged or holds other things.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except (
        Exception
    ) as error:  # torch raises RuntimeError, EOFError, UnpicklingError and others for damaged files
        raise ValueError(
            f"{path} holds no training state that can be read; resume from an older one"
        ) from error


def capture_random_state() -> dict[str, Any]:
    """The state of this process's global generators: torch, Python and the current GPU.

    Data, order and masks never draw from them (each follows from seed, epoch and sample id); dropout does.
    """
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Go back to a captured state; one saved without a GPU leaves the GPU's generator as it is."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _beside(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{kind}")


def _list_checkpoints(output_dir: Path) -> list[Path]:
    """By step, oldest first; `checkpoint-90` comes before `checkpoint-100`."""
    if not output_dir.is_dir():
        return []
    folders = [path for path in output_dir.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=checkpoint_step)


def _list_leftovers(output_dir: Path) -> list[Path]:
    if not output_dir.is_dir():
        return []
    kinds = ("partial", "replaced")
    return sorted(path for kind in kinds for path in output_dir.glob(f".checkpoint-*.{kind}"))


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _move_into_place(partial: Path, folder: Path) -> None:
    """Rename, with an older folder of that name set aside until the new one stands."""
    replaced = _beside(folder, "replaced")
    _remove(replaced)
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    _sync(folder.parent)
    _remove(replaced)


def _restore_replaced(output_dir: Path) -> None:
    """Put back a checkpoint that was set aside by a process killed between its two renames."""
    for replaced in _list_leftovers(output_dir):
        folder = replaced.with_name(replaced.stem.removeprefix("."))
        if replaced.suffix == ".replaced" and not folder.exists():
            replaced.rename(folder)


def _seal(folder: Path) -> None:
    """Sync every file, then write and sync the manifest, then read all of it back."""
    for path in _walk(folder):
        _sync(path)
    entries = {name: _size_and_hash(folder / name) for name in _file_names(folder)}
    with (folder / MANIFEST).open("wb") as file:
        file.write(_manifest_bytes(entries))
    _sync(folder / MANIFEST)
    _sync(folder)
    problem = verify_checkpoint(folder)
    if problem is not None:
        raise OSError(errno.EIO, f"what was written does not read back: {problem}")


def _manifest_bytes(entries: dict[str, tuple[int, str]]) -> bytes:
    files = {name: {"size": size, "sha256": sha256} for name, (size, sha256) in sorted(entries.items())}
    manifest = {"format_version": FORMAT_VERSION, "files": files}
    return (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()


def _first_difference(folder: Path, listed: dict[str, tuple[int, str]]) -> str | None:
    present = set(_file_names(folder))
    for name in sorted(listed.keys() - present):
        return f"{folder / name} is missing"
    for name in sorted(present - listed.keys()):
        return f"{folder / name} is not in {MANIFEST}; it was added later, remove it"
    # All sizes first: a cut file is found without hashing the whole checkpoint.
    for name, (size, _) in listed.items():
        if (actual := (folder / name).stat().st_size) != size:
            return f"{folder / name} has {actual} bytes instead of {size}"
    for name, (_, sha256) in listed.items():
        if _size_and_hash(folder / name)[1] != sha256:
            return f"{folder / name} was changed: its SHA-256 is not the recorded one"
    return None


def _manifest_difference(folder: Path, recorded: bytes, listed: dict[str, tuple[int, str]]) -> str | None:
    """Any other change: the manifest is not, byte for byte, what would be written today."""
    is_same = recorded == _manifest_bytes(listed)
    return (
        None
        if is_same
        else f"{folder / MANIFEST} was changed, or is of another version than {FORMAT_VERSION}"
    )


def _walk(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*"))


def _file_names(folder: Path) -> list[str]:
    """Relative names with `/`, without the manifest."""
    names = (path.relative_to(folder).as_posix() for path in _walk(folder) if not path.is_dir())
    return [name for name in names if name != MANIFEST]


def _size_and_hash(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _sync(path: Path) -> None:
    """Have the disk hold the file, or the folder's list of names, before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _ErrorRecorder:
    """A file for torch.save that remembers why a write failed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _as_os_error(error: Exception) -> OSError | None:
    """The system's error behind one of safetensors or tokenizers, which say only "(os error 28)"."""
    if isinstance(error, OSError):
        return error
    found = re.search(r"\(os error ([0-9]+)\)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None


def _explain(folder: Path, partial: Path, problem: OSError) -> str:
    written = sum(path.stat().st_size for path in _walk(partial) if path.is_file()) if partial.is_dir() else 0
    place = folder.parent if folder.parent.is_dir() else Path(folder.anchor or ".")
    free = shutil.disk_usage(place).free
    reason = problem.strerror or str(problem)
    message = f"{folder} cannot be saved: {reason} ({written:,} bytes written, {free:,} free on that disk"
    complete, _ = latest_checkpoint(folder.parent)
    if complete is None:
        return message + "); make room, or choose another output_dir"
    needed = sum(path.stat().st_size for path in _walk(complete) if path.is_file())
    return (
        message
        + f", {needed:,} needed by {complete.name}, which stays); make room, or choose another output_dir"
    )


def _assert_plain(value: object, place: str) -> None:
    if type(value) is dict:
        for key, item in value.items():
            assert type(key) in (str, int), f"{place} has a key of type {type(key).__name__}"
            _assert_plain(item, f"{place}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):  # type: ignore[arg-type]
            _assert_plain(item, f"{place}[{index}]")
    else:
        assert type(value) in _PLAIN_TYPES, (
            f"{place} is a {type(value).__name__}; use tensors, numbers and text"
        )
