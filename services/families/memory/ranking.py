"""Ranking of the hits of a search. Pure.

Reciprocal-rank fusion (k = 60) makes one signal of the ranks by words and by meaning, from 0 to 1: 1 is first in every
ranking there is. Then

    rank = semantic_weight * signal + recency_weight * 2^(-age / half_life) + frequency_weight * ln(1 + accesses)

Hits of one ranking alone keep its order; of two that are first in one each, that with the words comes first.
Near copies are looked for after ranking, so the best of them stays.

Before: search.py. After: nothing.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from loomlog.schemas.records import Value

FUSION_K = 60
HOUR_MS = 3_600_000
SEMANTIC_WEIGHT_DEFAULT = 1.0
HALF_LIFE_HOURS_DEFAULT = 168.0
DEDUP_THRESHOLD_DEFAULT = 0.92
DROP, MERGE, KEEP = "drop", "merge", "keep"


class Rank(Value, frozen=True, kw_only=True):
    """Weights of a search."""

    semantic_weight: float = SEMANTIC_WEIGHT_DEFAULT
    recency_weight: float = 0.0
    recency_half_life_hours: float = HALF_LIFE_HOURS_DEFAULT
    frequency_weight: float = 0.0
    source_weight: float = 0.0
    """Reserved: it has no effect."""


class Dedup(Value, frozen=True, kw_only=True):
    """What becomes of near copies. `drop`: only the best stays. `merge`: it names the others. `keep`: all stay, and the
    others name it.
    """

    enabled: bool = False
    threshold: float = DEDUP_THRESHOLD_DEFAULT
    """Least cosine of copies."""
    mode: str = DROP


class RankedHit(Value, frozen=True, kw_only=True):
    """A hit in its place."""

    key: str
    rank_score: float
    lexical_rank: int = 0
    """Place in the ranking by words, from 1; 0: it is not in it."""
    semantic_rank: int = 0
    merged: tuple[str, ...] = ()
    """Keys of copies that it stands for."""
    duplicate_of: str = ""


class RankFacts(Value, frozen=True):
    """What ranking needs to know of an entry besides its places."""

    at_ms: int
    accesses: int


def fused(lexical: Sequence[str], semantic: Sequence[str], rankings: int) -> dict[str, float]:
    """Return the signal of each key in two rankings, best first; `rankings`: how many of them there are, 1 or 2."""
    signals: dict[str, float] = {}
    for ranking in (lexical, semantic):
        for place, key in enumerate(ranking, 1):
            signals[key] = signals.get(key, 0.0) + (FUSION_K + 1) / (FUSION_K + place) / rankings
    return signals


def ranked(
    lexical: Sequence[str],
    semantic: Sequence[str],
    facts: Mapping[str, RankFacts],
    rank: Rank,
    *,
    rankings: int,
    now_ms: int,
) -> list[RankedHit]:
    """Return the keys of both rankings that have facts, the best first."""
    places = [{key: place for place, key in enumerate(ranking, 1)} for ranking in (lexical, semantic)]
    signals = fused(lexical, semantic, rankings)
    hits = [
        RankedHit(
            key=key,
            rank_score=_rank_score(signal, facts[key], rank, now_ms),
            lexical_rank=places[0].get(key, 0),
            semantic_rank=places[1].get(key, 0),
        )
        for key, signal in signals.items()
        if key in facts
    ]
    return sorted(hits, key=lambda hit: (-hit.rank_score, -signals[hit.key], not hit.lexical_rank, hit.key))


def _rank_score(signal: float, facts: RankFacts, rank: Rank, now_ms: int) -> float:
    half_lives = max(0, now_ms - facts.at_ms) / HOUR_MS / rank.recency_half_life_hours
    recency = math.exp2(-min(half_lives, 1_000.0))
    frequency = math.log1p(facts.accesses)
    return rank.semantic_weight * signal + rank.recency_weight * recency + rank.frequency_weight * frequency


def without_copies(
    hits: Sequence[RankedHit], similar: Collection[tuple[str, str]], mode: str
) -> tuple[list[RankedHit], int]:
    """Return the hits after what `mode` does to near copies, and how many were left out. `similar`: pairs of keys."""
    near: dict[str, set[str]] = {}
    for first, second in similar:
        near.setdefault(first, set()).add(second)
        near.setdefault(second, set()).add(first)
    kept: list[RankedHit] = []
    copies: dict[str, list[str]] = {}
    for hit in hits:
        original = next((one.key for one in kept if not one.duplicate_of and one.key in near.get(hit.key, ())), "")
        if not original:
            kept.append(hit)
        elif mode == KEEP:
            kept.append(replace(hit, duplicate_of=original))
        else:
            copies.setdefault(original, []).append(hit.key)
    left_out = sum(map(len, copies.values()))
    if mode == MERGE:
        kept = [replace(hit, merged=tuple(copies[hit.key])) if hit.key in copies else hit for hit in kept]
    return kept, left_out
