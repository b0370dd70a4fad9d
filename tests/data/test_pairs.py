"""Sentence pairs: the paper's rules worked by hand, a plain loop, chi-square tests, invariants."""

import pickle

import numpy as np
import pytest
from scipy import stats
from torch.utils.data import DataLoader

from hfbert.data.pair_plan import PairOptions, _draw_heads, _truncate
from hfbert.data.pairs import SentencePairs, pair_statistics
from hfbert.data.tokenized import TokenizedCorpus

CLS, SEP = 1, 2
FIRST_TOKEN = 10


def make_corpus(documents):
    """Sentence lengths -> a corpus whose tokens are all different: 10, 11, 12, ..."""
    lengths = [length for document in documents for length in document]
    sentences = np.append(0, np.cumsum(lengths, dtype=np.int64))
    ends = np.append(0, np.cumsum([len(document) for document in documents], dtype=np.int64))
    tokens = np.arange(FIRST_TOKEN, FIRST_TOKEN + sentences[-1], dtype=np.uint32)
    return TokenizedCorpus(tokens=tokens, sentence_offsets=sentences, document_offsets=ends)


def make_pairs(documents, seed=0, chosen=None, **options):
    corpus = documents if isinstance(documents, TokenizedCorpus) else make_corpus(documents)
    return SentencePairs(corpus, PairOptions(**options), CLS, SEP, seed, documents=chosen)


def random_documents(num_documents, seed=0, mean_length=9):
    generator = np.random.default_rng(seed)
    return [
        generator.geometric(1 / mean_length, size=generator.integers(1, 20)).tolist()
        for _ in range(num_documents)
    ]


def segments(sample):
    ids, types, special = (sample[key] for key in ("input_ids", "token_type_ids", "special_tokens_mask"))
    return ids[(types == 0) & (special == 0)].tolist(), ids[(types == 1) & (special == 0)].tolist()


def document_of(corpus, token):
    sentence = np.searchsorted(corpus.sentence_offsets, token - FIRST_TOKEN, side="right") - 1
    return np.searchsorted(corpus.document_offsets, sentence, side="right") - 1


def same(first, second):
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def test_a_document_of_two_sentences_is_one_pair_by_hand():
    pairs = make_pairs([[3, 2]], nsp_probability=1.0)
    assert len(pairs) == 1
    sample = pairs[0]
    assert sample["input_ids"].tolist() == [CLS, 10, 11, 12, SEP, 13, 14, SEP]
    assert sample["token_type_ids"].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert sample["special_tokens_mask"].tolist() == [1, 0, 0, 0, 1, 0, 0, 1]
    assert sample["next_sentence_label"] == 0 and sample["sample_id"] == 0
    assert {sample[key].dtype for key in ("input_ids", "token_type_ids", "special_tokens_mask")} == {
        np.dtype("int64")
    }


def test_label_0_is_the_true_next_text_and_label_1_is_from_another_document():
    corpus = make_corpus(random_documents(60))  # A16
    pairs = make_pairs(corpus, max_length=48)
    labels = []
    for sample in pairs:
        first, second = segments(sample)
        labels.append(sample["next_sentence_label"])
        if labels[-1] == 0:
            assert second[0] > first[-1]
            assert document_of(corpus, second[0]) == document_of(corpus, first[0])
        elif labels[-1] == 1:
            assert document_of(corpus, second[0]) != document_of(corpus, first[0])
            assert document_of(corpus, second[0]) == document_of(corpus, second[-1])
        else:
            assert labels[-1] == -100 and not second
    assert {0, 1} <= set(labels)


def test_without_truncation_true_pairs_are_adjacent_and_sentences_whole():
    documents = [[4, 5, 6], [3, 3], [7, 2, 2, 2]]
    corpus = make_corpus(documents)
    starts = set((corpus.sentence_offsets + FIRST_TOKEN).tolist())
    for epoch in range(20):
        pairs = make_pairs(corpus, max_length=64, short_seq_prob=0.0)
        pairs.set_epoch(epoch)
        for sample in pairs:
            first, second = segments(sample)
            for segment in (first, second):
                assert segment == list(range(segment[0], segment[-1] + 1)) if segment else True
                assert {segment[0], segment[-1] + 1} <= starts if segment else True
            if sample["next_sentence_label"] == 0:
                assert second[0] == first[-1] + 1


def test_every_sentence_is_used_once_as_own_text_when_all_pairs_are_true():
    corpus = make_corpus([[4, 5, 6, 3], [3, 3], [7, 2, 2, 2, 5, 5]])
    pairs = make_pairs(corpus, max_length=64, nsp_probability=1.0, short_seq_prob=0.0)
    own = [token for sample in pairs for segment in segments(sample) for token in segment]
    assert own == list(range(FIRST_TOKEN, FIRST_TOKEN + len(corpus.tokens)))


def test_the_unused_tail_of_a_chunk_opens_the_following_pair():
    corpus = make_corpus(random_documents(50, mean_length=3))
    pairs = make_pairs(corpus, max_length=200, nsp_probability=0.0, short_seq_prob=0.0)
    firsts = [segments(sample)[0] for sample in pairs]
    assert [token for first in firsts for token in first] == list(
        range(FIRST_TOKEN, FIRST_TOKEN + len(corpus.tokens))
    )


def test_samples_are_numbered_in_document_order():
    corpus = make_corpus(random_documents(80))
    pairs = make_pairs(corpus, max_length=32, short_seq_prob=0.0)
    documents = [document_of(corpus, segments(sample)[0][0]) for sample in pairs]
    assert documents == sorted(documents)
    assert [sample["sample_id"] for sample in pairs] == list(range(len(pairs)))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_share_of_true_pairs_is_nsp_probability(share):
    statistics = pair_statistics(make_pairs(random_documents(4000), max_length=64, nsp_probability=share))
    expected = stats.binomtest(
        statistics.num_pairs - statistics.num_random_pairs, statistics.num_pairs, share
    )
    assert expected.pvalue > 1e-4


def test_the_label_does_not_depend_on_the_length_of_the_first_sentence():
    # In the paper's builder a first sentence that fills the target makes a random pair, always.
    pairs = make_pairs([[120, 5, 120, 5, 120, 5]] * 1500, max_length=64)
    labels = np.array([sample["next_sentence_label"] for sample in pairs])
    first_lengths = np.array([len(segments(sample)[0]) for sample in pairs])
    is_long = first_lengths > 30
    table = [[(labels[rows] == label).sum() for label in (0, 1)] for rows in (is_long, ~is_long)]
    assert min(map(sum, table)) > 500
    assert stats.binomtest(int(table[0][0]), int(sum(table[0])), 0.5).pvalue > 1e-4


def test_a_random_second_segment_is_about_as_long_as_the_true_one():
    lengths = {0: [], 1: []}
    pairs = make_pairs(random_documents(6000), max_length=64, short_seq_prob=0.0)
    for sample in pairs:
        if sample["next_sentence_label"] >= 0:
            lengths[sample["next_sentence_label"]].append(len(segments(sample)[1]))
    assert abs(np.mean(lengths[0]) - np.mean(lengths[1])) < 0.1 * np.mean(lengths[0])


def test_with_sentences_of_one_length_a_random_second_segment_is_exactly_as_long():
    distributions = []
    pairs = make_pairs([[5] * 40] * 400, max_length=128, short_seq_prob=0.3)
    lengths = np.array([(s["next_sentence_label"], *map(len, segments(s))) for s in pairs])
    for column in (1, 2):
        true, random = (lengths[lengths[:, 0] == label, column] for label in (0, 1))
        distributions.append(stats.ks_2samp(true, random).pvalue)
    # Chunks near the end of a document are rare in 40 sentences: what is left of a difference is chance.
    assert min(distributions) > 1e-4


def test_random_documents_are_uniform_over_the_others():
    corpus = make_corpus([[6, 6]] * 12)
    counts = np.zeros((12, 12), dtype=int)
    pairs = make_pairs(corpus, nsp_probability=0.0, short_seq_prob=0.0)
    for epoch in range(150):
        pairs.set_epoch(epoch)
        for sample in pairs:
            first, second = segments(sample)
            if second:
                counts[document_of(corpus, first[0]), document_of(corpus, second[0])] += 1
    assert np.trace(counts) == 0
    assert stats.chisquare(counts[~np.eye(12, dtype=bool)]).pvalue > 1e-4


def test_the_length_of_the_first_segment_is_uniform_over_the_sentences_of_a_chunk():
    pairs = make_pairs([[2] * 8] * 4000, nsp_probability=1.0, short_seq_prob=0.0)
    counts = np.bincount([len(segments(sample)[0]) // 2 for sample in pairs], minlength=8)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 1e-4


def test_short_targets_are_uniform_from_2_tokens_to_the_longest():
    pairs = make_pairs([[40, 40]] * 6000, max_length=23, short_seq_prob=1.0, nsp_probability=1.0)
    totals = np.bincount([len(sample["input_ids"]) - 3 for sample in pairs], minlength=21)
    assert totals[:2].sum() == 0 and len(totals) == 21
    assert stats.chisquare(totals[2:]).pvalue > 1e-4


def test_one_in_ten_samples_is_short():
    pairs = make_pairs([[200, 200]] * 5000, max_length=64, nsp_probability=1.0)
    num_short = sum(len(sample["input_ids"]) < 64 for sample in pairs)
    assert (
        stats.binomtest(num_short, 5000, 0.1 * 60 / 61).pvalue > 1e-4
    )  # one short target in 60 is the longest


@pytest.mark.parametrize("short_seq_prob", [0.1, 1.0])
def test_long_sentences_never_pass_max_length_and_both_segments_keep_a_token(short_seq_prob):
    pairs = make_pairs([[300] * 5] * 100, max_length=128, short_seq_prob=short_seq_prob)  # B08
    for sample in pairs:
        first, second = segments(sample)
        assert len(sample["input_ids"]) <= 128 and len(first) >= 1
        assert len(second) >= 1 or sample["next_sentence_label"] == -100
    assert max(len(sample["input_ids"]) for sample in pairs) >= 127


@pytest.mark.parametrize("max_length", [8, 9, 16, 127])
def test_any_lengths_at_all_stay_within_max_length(max_length):
    for seed in range(5):
        pairs = make_pairs(
            random_documents(100, seed, mean_length=40), seed, max_length=max_length, short_seq_prob=0.5
        )
        for sample in pairs:
            first, second = segments(sample)
            assert len(sample["input_ids"]) <= max_length and first
            assert second or sample["next_sentence_label"] == -100


def test_truncation_takes_a_token_at_a_time_from_the_longer_side():
    generator = np.random.default_rng(0)
    lengths, targets = generator.integers(1, 60, size=(2000, 2)), generator.integers(2, 60, size=2000)
    first, second = (np.zeros(2000, dtype=np.int64), lengths[:, 0]), (lengths[:, 0] * 0, lengths[:, 1])
    spans = _truncate(
        first, second, targets, lambda stream: generator.integers(0, 2**64, 2000, dtype=np.uint64)
    )
    for row, target in enumerate(targets):
        a, b = lengths[row]
        while a + b > target:  # the paper's data builder
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert [spans[1][row] - spans[0][row], spans[3][row] - spans[2][row]] == [a, b]
        assert 0 <= spans[0][row] <= spans[1][row] <= lengths[row, 0]
        assert 0 <= spans[2][row] <= spans[3][row] <= lengths[row, 1]


@pytest.mark.parametrize("num_tosses", [1, 5, 64, 65, 200])
def test_tokens_are_cut_from_front_and_back_as_fair_coins_fall(num_tosses):
    generator = np.random.default_rng(num_tosses)
    heads = _draw_heads(
        np.full(20_000, num_tosses), lambda stream: generator.integers(0, 2**64, 20_000, dtype=np.uint64), 0
    )
    edges = np.unique(stats.binom(num_tosses, 0.5).ppf(np.linspace(0, 1, 12)[1:-1]))
    expected = np.diff(np.concatenate([[0], stats.binom(num_tosses, 0.5).cdf(edges), [1]])) * 20_000
    observed = np.histogram(heads, bins=np.concatenate([[-1], edges + 0.5, [num_tosses + 1]]))[0]
    keep = expected > 0
    assert stats.chisquare(observed[keep], expected[keep]).pvalue > 1e-4


def test_no_toss_gives_no_head():
    assert _draw_heads(
        np.array([0, 0]), lambda stream: np.full(2, 2**64 - 1, dtype=np.uint64), 0
    ).tolist() == [0, 0]
    assert _draw_heads(
        np.array([0, 3]), lambda stream: np.full(2, 2**64 - 1, dtype=np.uint64), 0
    ).tolist() == [0, 3]


def test_documents_of_one_sentence_each_run_and_say_that_there_are_no_pairs():
    pairs = make_pairs([[4]] * 10)  # B03
    assert len(pairs) == 10
    assert all(sample["next_sentence_label"] == -100 for sample in pairs)
    statistics = pair_statistics(pairs)
    assert (statistics.num_pairs, statistics.num_single_segments, statistics.random_share) == (0, 10, 0.0)
    assert str(statistics).startswith(
        "warning: documents: 10, with >= 2 sentences: 0, next-sentence pairs: 0"
    )
    assert "\n" not in str(statistics)


def test_single_sentence_documents_are_used_for_masked_lm_and_counted():
    pairs = make_pairs(
        [[4], [3, 2], [500], [2, 2]], nsp_probability=1.0, max_length=32, short_seq_prob=0.0
    )  # B04
    samples = [segments(sample) for sample in pairs]
    assert samples[0] == ([10, 11, 12, 13], [])
    assert pairs[0]["input_ids"].tolist() == [CLS, 10, 11, 12, 13, SEP]
    assert pairs[0]["token_type_ids"].tolist() == [0] * 6
    assert pairs[0]["special_tokens_mask"].tolist() == [1, 0, 0, 0, 0, 1]
    assert len(pairs[2]["input_ids"]) == 32
    statistics = pair_statistics(pairs)
    assert (statistics.num_documents, statistics.num_documents_with_pairs) == (4, 2)
    assert (statistics.num_pairs, statistics.num_single_segments) == (2, 2)
    assert statistics.mean_length == np.mean([len(sample["input_ids"]) for sample in pairs])
    assert "next-sentence pairs: 2 (0.0% random)" in str(statistics)


def test_empty_documents_and_sentences_never_give_an_empty_segment():
    corpus = make_corpus([[], [0], [0, 0], [3, 0, 4, 0], [0, 2, 5]])  # B06
    for epoch in range(500):  # two documents with text: 1,000 draws
        pairs = make_pairs(corpus, nsp_probability=0.0)
        pairs.set_epoch(epoch)
        assert pair_statistics(pairs).num_documents == 2
        for sample in pairs:
            first, second = segments(sample)
            assert first and (second or sample["next_sentence_label"] == -100)


def test_a_split_uses_its_own_documents_only():
    corpus = make_corpus(random_documents(60))
    chosen = np.arange(1, 60, 3)
    for sample in make_pairs(corpus, chosen=chosen[::-1]):
        for segment in segments(sample):
            assert not segment or document_of(corpus, segment[0]) in chosen


def test_own_text_of_a_document_does_not_depend_on_the_rest_of_the_split():
    corpus = make_corpus(random_documents(60))

    def own_text(chosen):
        pairs = make_pairs(corpus, chosen=chosen, nsp_probability=1.0)
        texts = [segments(sample) for sample in pairs]
        return [text for text in texts if document_of(corpus, text[0][0]) == 7]

    assert own_text(np.array([7])) == own_text(np.arange(60))


def test_epochs_and_seeds_differ_and_come_back():
    documents = random_documents(50)
    pairs = make_pairs(documents)
    first = list(pairs)
    pairs.set_epoch(1)
    second = list(pairs)
    pairs.set_epoch(0)
    assert all(map(same, first, pairs)) and len(first) == len(pairs)
    assert not all(map(same, first, second))
    assert not all(map(same, first, make_pairs(documents, seed=1)))


def test_pairs_are_the_same_for_any_number_of_workers_and_after_pickling():
    pairs = make_pairs(random_documents(50))
    expected = list(pairs)
    for num_workers in (0, 1, 2):
        loaded = list(DataLoader(pairs, batch_size=None, num_workers=num_workers, collate_fn=lambda row: row))
        assert len(loaded) == len(expected) and all(map(same, expected, loaded))
    assert all(map(same, expected, pickle.loads(pickle.dumps(pairs))))


def test_one_huge_document_among_small_ones_is_planned():
    pairs = make_pairs([[7] * 5000, [7] * 10])
    assert pair_statistics(pairs).num_pairs > 200


def test_a_sample_that_is_not_there_raises_index_error():
    pairs = make_pairs([[3, 3], [3, 3]])
    for sample in (-1, len(pairs)):
        with pytest.raises(IndexError, match=str(len(pairs))):
            pairs[sample]


def test_one_document_is_too_few_for_random_pairs_and_enough_for_true_ones():
    with pytest.raises(ValueError, match="next sentence prediction needs two documents or more"):
        make_pairs([[3, 3, 3], []])
    assert len(make_pairs([[3, 3, 3]], nsp_probability=1.0)) == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_sentence_order_pairs_follow_one_another_and_are_swapped_as_often_as_asked(share):
    documents = random_documents(400, seed=3)
    pairs = make_pairs(
        documents, pair_objective="sop", nsp_probability=share, max_length=600, short_seq_prob=0.0
    )
    labels = []
    for sample in (pairs[number] for number in range(len(pairs))):
        first, second = segments(sample)
        label = sample["next_sentence_label"]
        assert (label == -100) == (not second)
        if second and len(sample["input_ids"]) < 500:  # nothing was cut
            ordered = first + second if label == 0 else second + first
            assert ordered == list(range(ordered[0], ordered[0] + len(ordered)))
        labels += [label] if second else []
    assert np.mean([label == 0 for label in labels]) == pytest.approx(share, abs=0.04)


def test_every_token_is_used_once_under_sentence_order_and_without_pairs():
    documents = random_documents(60, seed=4)
    total = sum(map(sum, documents))
    for objective in ("sop", "none"):
        pairs = make_pairs(documents, pair_objective=objective, max_length=400, short_seq_prob=0.3)
        used = [token for number in range(len(pairs)) for part in segments(pairs[number]) for token in part]
        assert len(used) == len(set(used)) and len(used) > 0.8 * total


def test_without_pairs_there_is_one_text_no_label_and_as_much_as_fits():
    pairs = make_pairs(
        random_documents(200, seed=5, mean_length=30), pair_objective="none", short_seq_prob=0.0
    )
    lengths = []
    for sample in (pairs[number] for number in range(len(pairs))):
        first, second = segments(sample)
        assert not second and sample["next_sentence_label"] == -100 and not sample["token_type_ids"].any()
        assert first == list(range(first[0], first[0] + len(first)))
        lengths.append(len(sample["input_ids"]))
    assert max(lengths) == 128
    assert "masked LM alone" in str(pair_statistics(pairs))


def test_a_random_second_text_that_is_the_true_next_one_is_labelled_so():
    """Every document ends alike, so a random B is often what follows A anyway."""
    corpus = make_corpus([[3, 4]] * 30)
    tokens = corpus.tokens.copy()
    for document in range(30):
        tokens[7 * document + 3 : 7 * document + 7] = [5, 6, 7, 8]
    corpus = TokenizedCorpus(tokens, corpus.sentence_offsets, corpus.document_offsets)
    pairs = make_pairs(corpus, nsp_probability=0.0, short_seq_prob=0.0)
    labels = set()
    for sample in (pairs[number] for number in range(len(pairs))):
        second = segments(sample)[1]
        if second:
            assert (sample["next_sentence_label"] == 0) == (second == [5, 6, 7, 8])
            labels.add(sample["next_sentence_label"])
    assert labels == {0, 1}


def test_one_document_is_enough_where_no_text_is_random():
    for objective in ("sop", "none"):
        assert len(make_pairs([[3, 3, 3]], pair_objective=objective)) == 1
    with pytest.raises(ValueError, match="pair_objective='mlm' is not one of nsp, sop, none"):
        PairOptions(pair_objective="mlm")


def test_no_text_at_all_is_refused():
    for documents in ([], [[]], [[0], []]):
        with pytest.raises(ValueError, match="no document has any text"):
            make_pairs(documents)


def test_documents_that_do_not_exist_are_refused():
    for chosen in ([0, 9], [-1, 0]):
        with pytest.raises(ValueError, match="the corpus has 0 to 1"):
            make_pairs([[3, 3], [3, 3]], chosen=np.array(chosen))


@pytest.mark.parametrize(
    "options",
    [{"max_length": 7}, {"short_seq_prob": 1.1}, {"short_seq_prob": -1}, {"nsp_probability": 2}],
)
def test_impossible_options_are_refused_in_one_line_naming_them(options):
    with pytest.raises(ValueError, match=next(iter(options))) as error:
        PairOptions(**options)
    assert "\n" not in str(error.value)
