"""Lexemes and texts of entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.projections.memory_index.scoring import ScopeSample, select_lexemes
from loomlog.projections.memory_index.texts import embedded_text, entry_lexemes, value_text
from loomlog.projections.memory_index.tokens import TOKENS_MAX, LexemeHasher, count_lexemes, lexemes

SCRIPTS = "abcXYZ éßçñ абвгд αβγς अआइकि กขค 日本語 かな カタカナ 한국어 0123 ._-'’ \u0301\u0e34 ﬁ"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("She was running", "runs"),
        ("CAFÉ au lait", "cafe"),
        ("ﬁne \uff21\uff22", "FINE ab"),
        ("the user's car", "user"),
        ("don’t", "don't"),
        ("東京タワーに行く", "東京"),
        ("黒猫がいる", "猫"),
        ("ฉันรักภาษาไทย", "ภาษา"),
        ("서울에서 만나", "서울"),
        ("книги", "книга"),
        ("हिन्दी में", "हिन्दी"),
        ("due 2026-11-25", "2026-11-25"),
        ("due 2026-11-25", "2026"),
        ("pi is 3.14", "3.14"),
        ("memory/user_name-2", "user name 2"),
        ("naïve", "NAI\u0308VE"),
    ],
)
def test_a_text_has_all_lexemes_of_a_query_for_it_but_those_of_other_forms(text, query):
    assert set(lexemes(text)) & set(lexemes(query))


@given(st.lists(st.text(SCRIPTS.replace(" ", ""), min_size=1, max_size=12), min_size=1, max_size=8), st.data())
def test_each_word_of_a_text_is_found_by_itself(words, data):
    text = " ".join(words)
    assert set(lexemes(data.draw(st.sampled_from(words)))) <= set(lexemes(text))
    assert count_lexemes(text) == count_lexemes(text.upper()) or not text.isascii()


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_has_lexemes_that_can_be_hashed(text):
    counts = count_lexemes(text)
    numbers = LexemeHasher(b"k").numbers("memory:a/user/b", counts)
    assert all(-(2**63) <= one < 2**63 for one in numbers)
    assert "" not in counts


def test_a_text_is_read_up_to_a_bound():
    assert sum(1 for _ in lexemes("word " * 5_000)) == 2_000 == TOKENS_MAX
    assert sum(1 for _ in lexemes("語" * 100_000)) < 200_000
    assert len(next(iter(lexemes("x" * 1_000)))) == 64


def test_hashes_differ_by_scope_and_secret():
    counts = {"kayak": 1}
    numbers = [
        next(iter(LexemeHasher(secret).numbers(scope, counts)))
        for secret in (b"", b"k")
        for scope in ("memory:a/user/b", "memory:a/user/c")
    ]
    assert len(set(numbers)) == 4
    assert LexemeHasher(b"").check != LexemeHasher(b"k").check
    keys = {LexemeHasher(b"k").text_key(owner, text) for owner, text in (("a", "bc"), ("ab", "c"), ("", "abc"))}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"likes tea"', "likes tea"),
        ('{"b": ["x", 2], "a": {"c": true, "d": null}}', "b: x\nb: 2\nc\nd"),
        ("[]", ""),
        ("42", "42"),
        ("no json", "no json"),
        ("[" * 900 + '"x"' + "]" * 900, "x"),
    ],
)
def test_the_text_of_a_value(value, text):
    assert value_text(value) == text


def test_what_is_embedded_is_bounded_and_may_be_named():
    assert embedded_text("likes tea", " tea lover ") == "tea lover"
    assert embedded_text(" ", "") == ""
    assert len(embedded_text("x" * 9_000, "")) == 8_000


def test_words_of_the_key_count_more():
    assert entry_lexemes("tea", "tea", "") == {"tea": 3}


def test_rare_lexemes_select_alone_and_common_ones_in_pairs():
    sample = ScopeSample(entries=100_000, sampled=500, mean_length=10, hits={2: 50, 3: 100, 4: 400})
    selection = select_lexemes([1, 2, 3, 4], sample, budget=3_000)
    assert selection.any_of == [1]
    assert selection.pairs == [(2, 3)]
    assert selection.weights[1] > selection.weights[2] > selection.weights[3] > selection.weights[4] > 0


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 500), max_size=10), st.integers(1, 10**7))
def test_a_selection_reads_about_its_budget(hits, entries):
    sampled = min(entries, 500)
    sample = ScopeSample(entries, sampled, 10, {one: min(count, sampled) for one, count in hits.items()})
    selection = select_lexemes(list(hits), sample, budget=2_000)
    expected = sum(
        max(sample.hits[one], 0 if sampled == entries else 0.5) * entries / sampled for one in selection.any_of
    )
    assert expected <= 2_000
    assert set(selection.weights) == set(hits)
    assert all(weight >= 0 for weight in selection.weights.values())
