"""Ranking of hits and the fields of searches, without an index."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.core.operation_input import parse_operation
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.api import RECALL, SEARCH, MemoryRecall
from loomlog.services.families.memory.ranking import (
    HOUR_MS,
    Dedup,
    Rank,
    RankedHit,
    RankFacts,
    fused,
    ranked,
    without_copies,
)
from loomlog.services.families.memory.search_request import SearchRequest, recall_request, search_request

NOW = 1_780_000_000_000
BY_MEANING = Rank()
KEYS = st.lists(st.sampled_from([f"k{n}" for n in range(12)]), unique=True)


def keys(lexical, semantic, rank=BY_MEANING, facts=None, rankings=2) -> list[str]:
    known = {key: RankFacts(NOW, 0) for key in [*lexical, *semantic]} | (facts or {})
    return [hit.key for hit in ranked(lexical, semantic, known, rank, rankings=rankings, now_ms=NOW)]


def test_a_hit_of_both_rankings_comes_before_one_of_either():
    assert keys(["c", "b"], ["a", "b"]) == ["b", "c", "a"]
    hits = ranked(["a", "b"], ["b"], {"a": RankFacts(NOW, 0), "b": RankFacts(NOW, 0)}, Rank(), rankings=2, now_ms=NOW)
    assert [(hit.key, hit.lexical_rank, hit.semantic_rank) for hit in hits] == [("b", 2, 1), ("a", 1, 0)]


def test_the_signal_is_one_for_the_first_of_all_rankings():
    assert fused(["a", "b"], ["a"], 2)["a"] == fused(["a"], [], 1)["a"] == 1.0
    assert fused(["a"], [], 2)["a"] == 0.5
    assert fused(["a", "b"], [], 1)["b"] == 61 / 62


@given(lexical=KEYS, semantic=KEYS)
def test_hits_of_one_ranking_alone_keep_its_order_and_none_is_lost(lexical, semantic):
    order = keys(lexical, semantic)
    assert sorted(order) == sorted({*lexical, *semantic})
    for ranking, other in ((lexical, semantic), (semantic, lexical)):
        alone = [key for key in ranking if key not in other]
        assert [key for key in order if key in alone] == alone
    assert keys(lexical, []) == lexical
    assert keys([], semantic) == semantic


@given(lexical=KEYS, semantic=KEYS)
def test_a_hit_of_one_ranking_is_never_below_a_later_one_of_the_other(lexical, semantic):
    order = keys(lexical, semantic)
    for place, key in enumerate(lexical):
        for other_place, other in enumerate(semantic):
            if key not in semantic and other not in lexical and place != other_place:
                assert (order.index(key) < order.index(other)) == (place < other_place)


def test_age_and_accesses_raise_an_entry():
    facts = {"a": RankFacts(NOW - 24 * HOUR_MS, 0), "b": RankFacts(NOW, 0)}
    assert keys(["a", "b"], [], facts=facts) == ["a", "b"]
    assert keys(["a", "b"], [], Rank(recency_weight=1.0, recency_half_life_hours=24.0), facts) == ["b", "a"]
    (hit, _) = ranked(
        ["a", "b"],
        [],
        facts,
        Rank(semantic_weight=0.0, recency_weight=2.0, recency_half_life_hours=24.0),
        rankings=1,
        now_ms=NOW,
    )
    assert (hit.key, hit.rank_score) == ("b", 2.0)
    accessed = {"a": RankFacts(NOW, 0), "b": RankFacts(NOW, 9)}
    assert keys(["a", "b"], [], Rank(frequency_weight=0.1), accessed) == ["b", "a"]
    (hit,) = ranked(["b"], [], accessed, Rank(semantic_weight=0.0, frequency_weight=1.0), rankings=1, now_ms=NOW)
    assert hit.rank_score == math.log(10)


def test_an_entry_of_the_future_or_of_long_ago_has_a_finite_rank():
    facts = {"a": RankFacts(NOW + HOUR_MS, 0), "b": RankFacts(-(2**60), 0)}
    hits = ranked(
        ["a", "b"], [], facts, Rank(recency_weight=1.0, recency_half_life_hours=0.001), rankings=1, now_ms=NOW
    )
    assert [hit.rank_score for hit in hits] == [2.0, 61 / 62]


def test_an_entry_without_facts_is_no_hit():
    hits = ranked(["a", "b"], [], {"b": RankFacts(NOW, 0)}, Rank(), rankings=1, now_ms=NOW)
    assert [hit.key for hit in hits] == ["b"]


HITS = [RankedHit(key=key, rank_score=1.0) for key in "abcd"]
SIMILAR = [("a", "c"), ("b", "c"), ("c", "d")]


def test_copies_of_a_better_hit_are_dropped_merged_or_marked():
    assert without_copies(HITS, SIMILAR, "drop") == ([HITS[0], HITS[1], HITS[3]], 1)
    merged, left_out = without_copies(HITS, SIMILAR, "merge")
    assert ([(hit.key, hit.merged) for hit in merged], left_out) == ([("a", ("c",)), ("b", ()), ("d", ())], 1)
    marked, left_out = without_copies(HITS, SIMILAR, "keep")
    assert ([(hit.key, hit.duplicate_of) for hit in marked], left_out) == (
        [("a", ""), ("b", ""), ("c", "a"), ("d", "")],
        0,
    )


def search(**fields):
    return search_request(parse_operation(SEARCH, fields))


def test_the_fields_of_a_search_have_defaults_and_bounds():
    assert search(query="x") == SearchRequest(query="x", top_k=10)
    full = {
        "query": "x",
        "top_k": 50,
        "prefix": "a/",
        "sources": ["facts", "notes", "facts"],
        "rank": {"recency_weight": 1, "recency_half_life_hours": 2, "frequency_weight": None},
        "dedup": {"enabled": True, "threshold": 0.5, "mode": "merge"},
    }
    assert search(**full) == SearchRequest(
        query="x",
        top_k=50,
        prefix="a/",
        sources=("facts", "notes"),
        rank=Rank(recency_weight=1.0, recency_half_life_hours=2.0),
        dedup=Dedup(enabled=True, threshold=0.5, mode="merge"),
    )
    assert len(search(query="x" * 9_000).query) == 8_000
    assert recall_request(MemoryRecall(query="x")) == SearchRequest(query="x", sources=("facts",))


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, "missing_query", "query"),
        ({"query": " \n"}, "missing_query", "query"),
        ({"query": 1}, "bad_request", "query: expected text"),
        ({"query": "\ud800"}, "bad_request", "surrogate"),
        ({"query": "x\0"}, "bad_request", "NUL"),
        ({"query": "x", "top_k": 51}, "bad_request", "top_k: expected a whole number from 1 to 50"),
        ({"query": "x", "top_k": 0}, "bad_request", "top_k"),
        ({"query": "x", "sources": ["note"]}, "invalid_sources", "documents, facts, notes"),
        ({"query": "x", "sources": "facts"}, "invalid_sources", "list"),
        ({"query": "x", "sources": [["facts"]]}, "invalid_sources", "list"),
        ({"query": "x", "rank": []}, "bad_request", "rank: expected an object"),
        ({"query": "x", "rank": {"recency": 1}}, "bad_request", "'rank.recency' is unknown"),
        ({"query": "x", "rank": {"recency_weight": -1}}, "bad_request", "rank.recency_weight"),
        ({"query": "x", "rank": {"recency_weight": math.nan}}, "bad_request", "rank.recency_weight"),
        ({"query": "x", "rank": {"recency_weight": True}}, "bad_request", "rank.recency_weight"),
        ({"query": "x", "rank": {"recency_weight": 10**400}}, "bad_request", "rank.recency_weight"),
        ({"query": "x", "rank": {"recency_half_life_hours": 0}}, "bad_request", "recency_half_life_hours"),
        ({"query": "x", "dedup": {"mode": "mix"}}, "bad_request", "drop, keep, merge"),
        ({"query": "x", "dedup": {"mode": []}}, "bad_request", "drop, keep, merge"),
        ({"query": "x", "dedup": {"threshold": 2}}, "bad_request", "dedup.threshold"),
        ({"query": "x", "dedup": {"enabled": "yes"}}, "bad_request", "enabled"),
    ],
)
def test_bad_fields_are_refused_by_name(fields, code, text):
    with pytest.raises(Refused, match=text) as refused:
        search(**fields)
    assert refused.value.code == code


def test_a_threshold_of_recall_is_a_cosine():
    with pytest.raises(Refused, match=r"threshold: expected a number from -1\.0 to 1\.0"):
        parse_operation(RECALL, {"query": "x", "threshold": 1.1})
