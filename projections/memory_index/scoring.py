"""Which lexemes of a query are looked up, and what each weighs (BM25).

How many entries have a lexeme is estimated from a sample of the scope, which is the whole of a small one. A rare lexeme
selects every entry that has it. Common ones select only in pairs, so that a query of everyday words reads a bounded
number of entries, however large the scope is.

Not chosen: a table of counts (each write of an entry would update a row for each of its words).
Before: reads.py; services/families/memory/commands/evaluation/ranking.py, which ranks without Postgres.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

K1, B = 1.2, 0.75
"""BM25: how soon repetitions stop to matter, and how much long entries are held back."""
TERMS_MAX = 32
"""Lexemes of a query that are used."""
CANDIDATES_MAX = 1_000
"""Entries of a scope that are scored: 5 to 10 ms."""
TELLING = 0.05
"""Share of the largest weight below which a lexeme is not counted."""


class ScopeSample(NamedTuple):
    """What is known of a scope from a sample of its entries."""

    entries: float
    """Entries of the scope, estimated."""
    sampled: int
    mean_length: float
    hits: Mapping[int, int]
    """Entries of the sample that have each lexeme."""


class Selection(NamedTuple):
    """Which entries are scored, and with what."""

    any_of: list[int]
    """Each of these lexemes selects."""
    pairs: list[tuple[int, int]]
    """Both lexemes of a pair select together."""
    weights: dict[int, float]
    """Inverse document frequency of each lexeme of the query."""

    @property
    def telling(self) -> dict[int, float]:
        """The weights that make a difference: a lexeme that most entries have costs time and orders nothing."""
        least = TELLING * max(self.weights.values(), default=0.0)
        return {one: weight for one, weight in self.weights.items() if weight >= least}


def select_lexemes(lexemes: Sequence[int], sample: ScopeSample, budget: int = CANDIDATES_MAX) -> Selection:
    """Return what to look up so that about `budget` entries are read, the most telling ones."""
    frequencies = {one: _frequency(one, sample) for one in lexemes}
    weights = {
        one: math.log(1 + (sample.entries - frequency + 0.5) / (frequency + 0.5))
        for one, frequency in frequencies.items()
    }
    ordered = sorted(lexemes, key=lambda one: (frequencies[one], one))
    any_of: list[int] = []
    rest = float(budget)
    for one in ordered:
        if any_of and frequencies[one] > rest:
            break
        if frequencies[one] <= rest:
            any_of.append(one)
            rest -= frequencies[one]
    common = [one for one in ordered if one not in any_of]
    pairs = []
    candidates = sorted(
        ((first, second) for number, first in enumerate(common) for second in common[number + 1 :]),
        key=lambda pair: (-weights[pair[0]] - weights[pair[1]], pair),
    )
    for first, second in candidates:
        together = frequencies[first] * frequencies[second] / max(sample.entries, 1.0)
        if together <= rest:
            pairs.append((first, second))
            rest -= together
    return Selection(any_of, pairs, weights)


def rarest(selection: Selection) -> int:
    """Return the lexeme that tells most."""
    return max(selection.weights, key=lambda one: (selection.weights[one], one))


def bm25(counts: Mapping[int, int], weights: Mapping[int, float], mean_length: float) -> float:
    """Return the score of an entry with these counts of lexemes, as the statement of reads.py computes it."""
    damping = K1 * (1 - B + B * sum(counts.values()) / mean_length)
    return sum(
        weight * (K1 + 1) / (1 + damping / counts[lexeme]) for lexeme, weight in weights.items() if lexeme in counts
    )


def _frequency(lexeme: int, sample: ScopeSample) -> float:
    """Return the estimated number of entries that have a lexeme. One that the sample lacks counts as half a hit."""
    hits = sample.hits.get(lexeme, 0)
    if sample.sampled >= sample.entries:
        return float(hits)
    return max(hits, 0.5) * sample.entries / max(sample.sampled, 1)
