import random
import re

import pytest

from hfbert.data.sentences import INVISIBLE, is_blank, split_sentences


@pytest.mark.parametrize(
    "document, sentences",
    [
        ("他说：“你好。”Then he left. 再见！", ["他说：“你好。”", "Then he left.", "再见！"]),
        (
            "It costs 3.14 dollars, e.g. at Mr. Li's. 真的吗？",
            ["It costs 3.14 dollars, e.g. at Mr. Li's.", "真的吗？"],
        ),
        ("他问：“去吗？”她说：“不去。”", ["他问：“去吗？”", "她说：“不去。”"]),
        ("价格是3.14元。版本2.0发布了！", ["价格是3.14元。", "版本2.0发布了！"]),
        ("彼は行った。「はい。」", ["彼は行った。", "「はい。」"]),
        ("", []),
        (" \n\u200b\n\ufeff ", []),
    ],
)
def test_english_chinese_japanese_and_mixed_text(document, sentences):
    assert split_sentences(document) == sentences


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_line_break_is_a_space_and_nothing_between_chinese_characters(line_end):
    document = line_end.join(["Tea is", "  hot. 茶", "很热。", "Very"])
    assert split_sentences(document) == ["Tea is hot.", "茶很热。", "Very"]


def test_a_blank_line_ends_a_sentence_even_without_a_full_stop():
    assert split_sentences("A title\n \u200b\t\nThe text\n\n\n") == ["A title", "The text"]


def test_no_text_is_lost_and_nothing_raises():
    letters = "aBMr1你好カナéßЖ😀\u0301A"
    marks = ".. 。！？!?“”\"'()（）「」；;…،؟।"
    odd = "\n\r\t\u200b\ufeff\0\ud800\udc00\u2028\x85\u3000\xa0\u2009\x0c"
    generator = random.Random(0)
    for _ in range(5000):
        document = "".join(generator.choices(letters + marks + odd, k=generator.randrange(40)))
        visible = re.compile(rf"[\s{INVISIBLE}]")
        sentences = split_sentences(document)
        assert visible.sub("", "".join(sentences)) == visible.sub("", document)
        assert all(sentence == sentence.strip() and not is_blank(sentence) for sentence in sentences)


@pytest.mark.parametrize("space", ["\u3000", "\xa0", "\u2009", "\x85"])
def test_wide_white_space_around_an_initial_does_not_bring_the_splitter_down(space):
    assert split_sentences(f"B{space}. Next one.")[-1].endswith("Next one.")
    assert split_sentences(f"好B{space}.好。你好。")[-1] == "你好。"
