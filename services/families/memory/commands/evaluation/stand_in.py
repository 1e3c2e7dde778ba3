"""Embedder of the offline evaluation: a stand-in for a real one, which needs no network.

A vector is the sum of a direction for each word of a text. Words of a group below share a second direction, so that
other words of the same meaning are near; parts of words share a weaker one, so that misspelt words are; words of
grammar hardly count. Names and numbers blur, as in real embedders, the more the fewer dimensions there are.

It says how rankings work together, and nothing about an embedder: for that, memory-eval has --embedder auto.

Before: offline.py. After: words.py.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from hashlib import shake_128

from loomlog.services.families.memory.commands.evaluation.words import stem, words

DIMENSIONS = 64
GROUPS = (
    "live lives home town city based flat residence located dwell",
    "allergy allergic allergies intolerance avoid",
    "food eat meal menu dish",
    "editor code coding program programming write written implementation implemented language",
    "drink drinks beverage coffee tea served",
    "seat sit coach aisle window reservation",
    "train travel travelling ticket book booked booking trip",
    "birthday born birth date day",
    "badge door doors access card",
    "native mother tongue language speak spoke grew child",
    "pet animal keep terrier tortoise canaries rabbit greyhound parrot hens",
    "meeting meetings meet invited invite appointment",
    "earliest early before start",
    "monthly figures report reports format form",
    "weekend weekends saturdays sundays hobby leisure spare",
    "manager boss report reports reports approves approval",
    "size shirt shirts clothing clothes wear wears fits",
    "database data store stores storage keeps engine",
    "deadline deliver delivered delivery due contract",
    "budget money spend funds euros cost",
    "deploy deployed deployment deployments release releases",
    "forbidden closed never must not",
    "audit file reference number",
    "supplier supplies vendor buys buy purchase",
    "team member join joined group",
    "day weekday monday tuesday wednesday thursday friday",
)
"""Words of about the same meaning."""
GRAMMAR_WORDS = (
    "a an and are as at be can did do does for from has have how i in is it must of on or she should so some that the "
    "their there to was what when where which who whom whose why will with by he me my tell one"
)
GRAMMAR = frozenset(GRAMMAR_WORDS.split())
WORD_WEIGHT, GROUP_WEIGHT, PARTS_WEIGHT, GRAMMAR_WEIGHT = 1.0, 1.0, 0.5, 0.1


class StandInEmbedder:
    """Protocol Embedder of connectors/embedders/embedder.py."""

    provider = "stand-in"
    model = "stand-in"

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self.dimension = dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    async def close(self) -> None:
        pass

    def _vector(self, text: str) -> list[float]:
        columns = [_word_vector(word, self.dimension) for word in dict.fromkeys(words(text))] or [
            _direction("", self.dimension)
        ]
        total = [math.fsum(numbers) for numbers in zip(*columns, strict=True)]
        length = math.hypot(*total) or 1.0
        return [number / length for number in total]


@lru_cache(maxsize=16_384)
def _word_vector(word: str, dimensions: int) -> tuple[float, ...]:
    """Return the part that a word has in the vector of its text."""
    if word in GRAMMAR:
        return tuple(GRAMMAR_WEIGHT * number for number in _direction(word, dimensions))
    padded = f" {word} "
    parts = [padded[start : start + 3] for start in range(len(padded) - 2)]
    features = [(f"word {stem(word)}", WORD_WEIGHT)]
    features += [(f"part {part}", PARTS_WEIGHT / math.sqrt(len(parts))) for part in parts]
    groups = _groups().get(stem(word), ())
    features += [(f"group {group}", GROUP_WEIGHT / math.sqrt(len(groups))) for group in groups]
    columns = [[weight * number for number in _direction(name, dimensions)] for name, weight in features]
    return tuple(map(sum, zip(*columns, strict=True)))


@lru_cache(maxsize=16_384)
def _direction(feature: str, dimensions: int) -> tuple[float, ...]:
    """Return a vector of length 1 whose direction is that of a feature alone."""
    bits = int.from_bytes(shake_128(feature.encode(errors="replace")).digest(-(-dimensions // 8)))
    length = math.sqrt(dimensions)
    return tuple((1 if bits >> place & 1 else -1) / length for place in range(dimensions))


@lru_cache(maxsize=1)
def _groups() -> dict[str, list[int]]:
    """Return the groups of each stem."""
    groups: dict[str, list[int]] = {}
    for number, group in enumerate(GROUPS):
        for one in dict.fromkeys(map(stem, group.split())):
            groups.setdefault(one, []).append(number)
    return groups
