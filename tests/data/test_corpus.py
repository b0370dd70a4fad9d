import gzip
import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from hfbert.data import pydoc
from hfbert.data.corpus import CorpusOptions, read_documents
from hfbert.data.prose import extract_prose


def read(corpus: object, **options: object) -> list[str]:
    return list(read_documents(CorpusOptions(corpus=str(corpus), **options)))


def refusal(corpus: object, **options: object) -> str:
    with pytest.raises(ValueError) as caught:
        read(corpus, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) <= 300
    return message


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


TWO = ["茶是热的。\nIt steams.", "雪很冷。"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("blank", ["", " \t", "\u200b", "\u3000"])
def test_blank_lines_end_documents_whatever_ends_a_line(tmp_path, line_end, blank):
    lines = ["", "茶是热的。", "It steams.", blank, blank, "雪很冷。", ""]
    assert read(write(tmp_path / "a.txt", line_end.join(lines))) == TWO


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert read(write(tmp_path / "a.txt", "\ufeffTea.\n")) == ["Tea."]


def test_each_line_or_each_file_can_be_a_document(tmp_path):
    path = write(tmp_path / "a.txt", "Tea.\n\nSnow.\u2028Ice.\n")
    assert read(path, document_separator="line") == ["Tea.", "Snow.\u2028Ice."]
    assert read(path, document_separator="file") == ["Tea.\n\nSnow.\u2028Ice.\n"]


def test_a_folder_is_read_recursively_sorted_without_hidden_or_foreign_files(tmp_path):
    for name in ("b.txt", "a/z.md", "a/b.text", "plain", ".hidden.txt", ".git/x.txt", "picture.png"):
        write(tmp_path / name, name)
    assert read(tmp_path) == ["a/b.text", "a/z.md", "b.txt", "plain"]


def test_a_glob_names_several_files(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        write(tmp_path / name, name)
    assert read(tmp_path / "*.txt") == ["a.txt", "b.txt"]
    assert "matches no file" in refusal(tmp_path / "*.rst")


def test_packed_text_reads_as_unpacked(tmp_path):
    text = "茶。\n\n雪。\n".encode()
    write(tmp_path / "a.txt.gz", gzip.compress(text))
    assert read(tmp_path / "a.txt.gz") == read(write(tmp_path / "b.txt", text)) == ["茶。", "雪。"]
    assert "cannot be read" in refusal(write(tmp_path / "c.txt.gz", gzip.compress(text)[:-9]))
    assert "cannot be read" in refusal(write(tmp_path / "d.txt.gz", b"no archive"))


def test_json_lines_and_parquet_give_their_text_column(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"body": "茶。\n\nTea."}, {"body": None}, {"body": "雪。"}]
    jsonl = write(tmp_path / "a.jsonl", "\n".join(json.dumps(row) for row in rows) + "\n\n")
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    expected = ["茶。\n\nTea.", "", "雪。"]
    assert read(jsonl, text_column="body") == read(tmp_path / "a.parquet", text_column="body") == expected
    for path in (jsonl, tmp_path / "a.parquet"):
        message = refusal(path)
        assert "'text'" in message and "body" in message and "--text_column" in message


@pytest.mark.parametrize(
    "line, reason",
    [
        ('{"text": ', "is not JSON"),
        ('["a"]', "not a JSON object"),
        ('{"text": 3}', "is a int"),
        ("[" * 99999, ""),
    ],
)
def test_a_bad_json_line_is_named(tmp_path, line, reason):
    message = refusal(write(tmp_path / "a.jsonl", '{"text": "a"}\n' + line + "\n"))
    assert "a.jsonl, line 2" in message and reason in message


@pytest.mark.parametrize("streaming", [False, True])
def test_a_folder_of_tables_is_loaded_by_datasets_with_its_splits(tmp_path, monkeypatch, streaming):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    write(tmp_path / "data" / "train.jsonl", '{"text": "Tea."}\n{"text": "Snow."}\n')
    write(tmp_path / "data" / "test.jsonl", '{"text": "Ice."}\n')
    write(tmp_path / "data" / "README.md", "About the data.")
    assert read(tmp_path / "data", streaming=streaming) == ["Tea.", "Snow."]
    assert read(tmp_path / "data", streaming=streaming, dataset_split="test") == ["Ice."]
    assert "--dataset_split" in refusal(tmp_path / "data", streaming=streaming, dataset_split="dev")
    assert "choose one of these" in refusal(tmp_path / "data", streaming=streaming, text_column="body")


def test_a_name_that_cannot_be_loaded_is_one_line_with_the_remedy(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(name, config, split, streaming):
        raise ConnectionError(f"Couldn't reach '{name}' on the Hub\nand a long story")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    message = refusal("someone/stories")
    assert message.startswith("--corpus someone/stories: ") and "network" in message


def test_without_datasets_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert 'pip install "hfbert[train]"' in refusal("someone/stories")


def test_a_path_that_does_not_exist_is_refused_without_asking_the_network(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # asking it would say what to install
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    names = [
        "./stories",
        "/no/such/folder",
        "stories.txt",
        "data/stories",
        "a/b/c",
        "~/no-such-file-here",
        "a\0b",
    ]
    for name in names:
        with pytest.raises(ValueError, match="does not exist"):
            read_documents(CorpusOptions(corpus=name))  # at once, not at the first document
    with pytest.raises(ValueError, match="--corpus: is empty"):
        read_documents(CorpusOptions(corpus=""))


def test_a_wrong_encoding_is_named_by_file_line_and_byte(tmp_path):
    head = "one\r\ntwo\rthree\n"
    path = write(tmp_path / "a.txt", head.encode() + "ab你好".encode("gb18030"))
    message = refusal(path)
    assert f"a.txt, line 4, byte {len(head) + 3}:" in message and "iconv -f gb18030 -t utf-8" in message
    assert "line 1, byte 1:" in refusal(write(tmp_path / "b.jsonl", '{"text": "a"}'.encode("utf-16")))


def test_the_bad_byte_of_a_long_file_is_found(tmp_path):
    path = write(tmp_path / "a.txt", b"0123456789abcde\n" * 5000 + b"\xff\n")
    assert "line 5001, byte 80001:" in refusal(path)


@pytest.mark.parametrize("content", ["", "\n \n\u200b\n", "\ufeff"])
def test_a_corpus_without_text_is_refused(tmp_path, content):
    for separator in ("blank_line", "line", "file"):
        assert "holds no text" in refusal(write(tmp_path / "a.txt", content), document_separator=separator)
    assert "holds no text file" in refusal(write(tmp_path / "b" / "picture.png", content).parent)


def test_a_file_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "Tea.")

    def refuse(*arguments, **settings):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # chmod does not keep root out
    message = refusal(path)
    assert "a.txt" in message and "Permission denied" in message


def test_a_very_long_path_still_gives_a_short_message(tmp_path):
    folder = tmp_path.joinpath(*["a" * 100] * 4)
    assert "a.jsonl, line 1" in refusal(write(folder / "a.jsonl", "x"))


def test_no_more_documents_than_asked_are_read(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n{"text": "b"}\nnot read\n')
    assert read(path, max_documents=2) == ["a", "b"]
    with pytest.raises(ValueError, match="max_documents=0"):
        CorpusOptions(max_documents=0)
    with pytest.raises(ValueError, match="document_separator='lines'"):
        CorpusOptions(document_separator="lines")  # type: ignore[arg-type]


DOCSTRING = r"""
    Return the :class:`~pathlib.Path` of the ``file``, or *None* if `there <https://x.org>`_ is none.

    Title of a section
    ------------------

    This paragraph stands on two lines and
    it has a :func:`call <a.b.call>` and a [link](http://y.org/z).

    >>> this_is_code(1)
    and its output is this line of text here.

    The following is how one would call it::

        this is a literal block and it is dropped by the reader.

    ```python
    fenced = "code that is in the text and has all the words"
    ```

    .. note:: A note is for the reader and it is kept.

    .. code-block:: python

        the code of a block is in no way a text of any kind.

    +-------+---------------------------+
    | a row | of a table is in no way a text |
    +-------+---------------------------+

    Args:
        size (`int`, *optional*, defaults to 3):
            How many times it is to be tried
            before it gives up.
        name: The name of the thing to be found.

    Parameters
    ----------
    x : array_like, optional
        The values that are to be added to it.

    :param depth: How deep into the tree it is to look.
    :type depth: int
    :returns: The number of the files that it found.

    * the first of the items in a list,
      which goes on here.
    """


def test_prose_is_what_a_person_would_read_aloud():
    assert extract_prose(DOCSTRING).split("\n\n") == [
        "Return the Path of the file, or None if there is none.",
        "This paragraph stands on two lines and it has a call and a link.",
        "The following is how one would call it:",
        "A note is for the reader and it is kept.",
        "How many times it is to be tried before it gives up.",
        "The name of the thing to be found.",
        "The values that are to be added to it.",
        "How deep into the tree it is to look.",
        "The number of the files that it found.",
        "the first of the items in a list, which goes on here.",
    ]


def test_the_example_at_the_head_of_the_module_holds():
    docstring = (
        "Return the :class:`~a.Path` of a file.\n\n>>> f()\n1\n\nArgs:\n    x (int): How many times to try."
    )
    assert extract_prose(docstring) == "Return the Path of a file.\n\nHow many times to try."


@pytest.mark.parametrize(
    "docstring", ["", "\n", "```\n", "x", ">>> a", ".. note::", "::", ":param", "* ", "\t\t-\n---"]
)
def test_a_docstring_without_prose_gives_nothing(docstring):
    assert extract_prose(docstring) == ""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A tiny standard library and no packages."""
    monkeypatch.setattr(pydoc.sysconfig, "get_path", lambda name: str(tmp_path / "library"))
    monkeypatch.setattr(pydoc, "_installed_dependencies", lambda: [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "library"


LONG = " ".join(
    f"This is sentence number {word} of the text and it is here." for word in ("one", "two", "three")
)


def test_documents_say_where_they_are_from_in_reading_order(installed):
    source = f'''
    """{LONG}"""
    class A:
        def f(self):
            """Of f: {LONG} It is of f."""
    if True:
        async def g():
            """{LONG} It is of g."""
    def again():
        """{LONG}"""
    def short():
        """It is too short."""
    '''
    write(installed / "z" / "__init__.py", textwrap.dedent(source))
    write(installed / "a.py", f'"""{LONG} It is of a."""')
    assert [(row["package"], row["name"]) for row in pydoc.read_pydoc()] == [
        ("python", "a"),
        ("python", "z"),
        ("python", "z.A.f"),
        ("python", "z.g"),
    ]


def test_sources_that_do_not_parse_and_test_folders_are_passed_over(installed, recwarn):
    write(installed / "bad.py", f'"""{LONG}"""\nif')
    write(installed / "null.py", f'"""{LONG}"""\0')
    write(installed / "test" / "a.py", f'"""{LONG}"""')
    write(installed / "latin.py", f'# coding: latin-1\n"""{LONG} Caf\xe9."""\n"\\d"\n'.encode("latin-1"))
    write(installed / "surrogate.py", f'"""{LONG} It is \\ud800 of it."""')
    assert [row["name"] for row in pydoc.read_pydoc()] == ["latin", "surrogate"]
    assert read("pydoc")[0].endswith("Café.")
    assert not recwarn.list


def test_the_second_reading_comes_from_the_cache_and_half_a_cache_is_never_left(installed, monkeypatch):
    write(installed / "a.py", f'"""{LONG}"""')
    with monkeypatch.context() as broken:
        broken.setattr(pydoc, "extract_prose", lambda docstring: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(pydoc.read_pydoc())
    assert not any(os.scandir(installed.parent / "cache" / "hfbert"))
    first = read("pydoc")
    (installed / "a.py").unlink()
    assert read("pydoc") == first == [LONG]


def test_a_cache_that_cannot_be_written_is_named(installed, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(installed.parent / "a file", "x")))
    assert "XDG_CACHE_HOME" in refusal("pydoc")


def test_the_dependencies_of_hfbert_are_found_and_hfbert_is_not_among_them():
    names = [pydoc.canonicalize_name(distribution.name) for distribution in pydoc._installed_dependencies()]
    assert {"torch", "transformers", "numpy", "tokenizers"} <= set(names) and "hfbert" not in names
    assert names == sorted(names)


@pytest.mark.slow
def test_the_installed_documentation_is_megabytes_of_prose(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    documents = read("pydoc")
    assert len(documents) > 10_000 and sum(map(len, documents)) > 5_000_000
    assert len(set(documents)) == len(documents)
    marks = (">>>", "```", ":class:", "http://")
    # A few sources have broken markup, such as :class:`Shard' with an apostrophe at its end.
    assert sum(any(mark in document for mark in marks) for document in documents) < len(documents) / 1000
