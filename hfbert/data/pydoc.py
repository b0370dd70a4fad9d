"""Turn the documentation that is installed on this machine into prose documents.

json/__init__.py: def dump(...): "Serialize ``obj`` as ..."
    ->  {"text": "Serialize obj as ...", "package": "python", "name": "json.dump"}

Nothing is imported and nothing is downloaded: the sources of the standard library and of the installed
dependencies of hfbert are parsed with `ast`.
"""

import ast
import gc
import hashlib
import importlib.metadata
import json
import os
import platform
import sysconfig
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hfbert.data.prose import extract_prose

EXTRACTION_FORMAT = 2  # part of the cache's name: raise it when the same sources give other documents
MIN_CHARACTERS = 150  # less is one short sentence, of no use to next sentence prediction

_SKIPPED_FOLDERS = {
    "test",
    "tests",
    "testing",
    "_testing",
    "idle_test",
    "site-packages",
    "_vendor",
    "__pycache__",
}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def read_pydoc() -> Iterator[dict[str, str]]:
    """Yield {"text", "package", "name"} for each docstring that has prose, always in the same order.

    The first call parses some 200 MB of source (20 to 60 seconds) and keeps the result in the user's cache
    folder, under a name made of the versions of Python and of every package read.
    """
    return _read_cached("pydoc", _extract_all)


def read_docstrings() -> Iterator[dict[str, str]]:
    """Yield {"docstring", "package", "name"} for the same docstrings as they are written, markup and all."""
    return _read_cached("docstrings", _find_docstrings)


def _read_cached(
    kind: str, find: Callable[[list[importlib.metadata.Distribution]], Iterator[dict[str, str]]]
) -> Iterator[dict[str, str]]:
    distributions = _installed_dependencies()
    path = _cache_path(kind, distributions)
    if not path.exists():
        _write_lines(path, find(distributions))
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _installed_dependencies() -> list[importlib.metadata.Distribution]:
    """What hfbert and all its extras need, as far as it is installed, sorted by name; not hfbert itself."""
    # A checkout that was never installed has no list of its dependencies.
    roots = ["hfbert"] if _distribution("hfbert") else ["torch", "transformers"]
    pending = [(root, _extras(root) if root == "hfbert" else ()) for root in roots]
    seen: dict[tuple[str, str], None] = {}
    while pending:
        name, extras = pending.pop()
        for extra in ("", *extras):
            if (name, extra) not in seen:
                seen[(name, extra)] = None
                pending.extend(_requirements(name, extra))
    names = sorted({name for name, _ in seen if name != "hfbert" and _distribution(name)})
    return [importlib.metadata.distribution(name) for name in names]


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extras(name: str) -> tuple[str, ...]:
    distribution = _distribution(name)
    return tuple(distribution.metadata.get_all("Provides-Extra") or ()) if distribution else ()


def _requirements(name: str, extra: str) -> list[tuple[str, tuple[str, ...]]]:
    distribution = _distribution(name)
    requirements = [Requirement(text) for text in (distribution.requires or [] if distribution else [])]
    return [
        (canonicalize_name(requirement.name), tuple(requirement.extras))
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    ]


def _cache_path(kind: str, distributions: list[importlib.metadata.Distribution]) -> Path:
    versions = [f"{distribution.name}=={distribution.version}" for distribution in distributions]
    key = "\n".join([str(EXTRACTION_FORMAT), platform.python_version(), *versions])
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hfbert"
    return folder / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"


def _write_lines(path: Path, documents: Iterator[dict[str, str]]) -> None:
    """Write beside and rename, so that a run that dies midway leaves no short corpus behind.

    Raises ValueError when the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
            try:
                file.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
            except BaseException:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
    except OSError as error:
        raise ValueError(
            f"cannot write the corpus cache {path}: {error.strerror}; set XDG_CACHE_HOME to a folder you own"
        ) from None


def _extract_all(distributions: list[importlib.metadata.Distribution]) -> Iterator[dict[str, str]]:
    # A paragraph is kept where it first appears: a parameter that a hundred models describe in the same words
    # would otherwise be both learned and asked for in the held-out part.
    seen: set[str] = set()
    for row in _find_docstrings(distributions):
        paragraphs = [text for text in extract_prose(row["docstring"]).split("\n\n") if text not in seen]
        seen.update(paragraphs)
        text = "\n\n".join(paragraphs)
        if len(text) >= MIN_CHARACTERS:
            yield {"text": text, "package": row["package"], "name": row["name"]}


def _find_docstrings(distributions: list[importlib.metadata.Distribution]) -> Iterator[dict[str, str]]:
    """Every docstring that is long enough, where it first appears."""
    seen: set[str] = set()
    collects_garbage = gc.isenabled()
    gc.disable()  # syntax trees hold no cycles, and looking for some doubles the time
    try:
        for package, module, path in _source_files(distributions):
            for name, docstring in _docstrings(path):
                if len(docstring) >= MIN_CHARACTERS and docstring not in seen:
                    seen.add(docstring)
                    yield {"docstring": docstring, "package": package, "name": ".".join([module, *name])}
    finally:
        if collects_garbage:
            gc.enable()


def _source_files(
    distributions: list[importlib.metadata.Distribution],
) -> Iterator[tuple[str, str, Path]]:
    """The (package, module, path) of every Python file, standard library first."""
    library = Path(sysconfig.get_path("stdlib"))
    roots = [("python", library, sorted(path.relative_to(library) for path in library.rglob("*.py")))]
    for distribution in distributions:
        files = sorted(Path(str(file)) for file in distribution.files or [] if file.suffix == ".py")
        roots.append((canonicalize_name(distribution.name), Path(str(distribution.locate_file(""))), files))
    for package, root, files in roots:
        for file in files:
            if not _SKIPPED_FOLDERS.intersection(file.parts) and ".." not in file.parts:
                module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
                yield package, module, root / file


def _docstrings(path: Path) -> Iterator[tuple[list[str], str]]:
    """The (qualified name, docstring) pairs of a file in reading order; none when it does not parse."""
    try:
        source = path.read_bytes()
        if source.count(b'"""') + source.count(b"'''") < 2:
            return  # a one-line docstring in single quotes would be too short anyway
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes such as "\d" are none of the reader's business
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    yield from _walk(tree, [])


def _walk(node: ast.AST, name: list[str]) -> Iterator[tuple[list[str], str]]:
    if isinstance(node, (ast.Module, *_DEFINITIONS)):
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            # A lone surrogate written as an escape cannot be stored as UTF-8.
            yield name, docstring.encode("utf-8", "replace").decode()
    for child in getattr(node, "body", []):
        if isinstance(child, _DEFINITIONS):
            yield from _walk(child, [*name, child.name])
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            yield from _walk(child, name)
