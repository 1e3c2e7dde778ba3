"""Similarities of pairs of facts, and the thresholds that tell them apart. Pure.

    one         both say the same thing, or one has its newer value: at or above merge_threshold they become one fact
    related     another thing of the same owner, or the same of another: from related_threshold on they are compared
    unrelated   nothing in common

Merging retires a fact, so merge_threshold is above nearly all pairs that are not one, even if few that are reach it;
the judge decides about the rest. related_threshold separates pairs that are one from unrelated pairs best.

Before: calibrate.py. After: pairs.py.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.schemas.records import Value
from loomlog.services.families.memory.commands.evaluation.pairs import FAR, NEWER, OTHER, SAME

ONE, RELATED, UNRELATED = "one", "related", "unrelated"
BANDS: Mapping[str, str] = {SAME: ONE, NEWER: ONE, OTHER: RELATED, FAR: UNRELATED}
"""The band of each label."""
WRONG_MERGES_MAX = 0.01
"""Share of related and unrelated pairs that a suggested merge_threshold lets through."""
CHECK_WRONG_MERGES_MAX = 0.05
CHECK_COMPARED_MIN = 0.5
"""Share of pairs that are one, at least this many of which must reach related_threshold: others are stored twice."""
CHECK_UNRELATED_MAX = 0.1
"""Share of unrelated pairs that may reach related_threshold: each costs the judge a look."""
PERCENTILES = (0.05, 0.5, 0.95)


class Distribution(Value, frozen=True, kw_only=True):
    """Similarities of a band."""

    pairs: int
    least: float
    percentiles: tuple[float, ...]
    """Those of PERCENTILES."""
    most: float

    def to_json(self) -> dict[str, Any]:
        names = [f"p{100 * share:.0f}" for share in PERCENTILES]
        values = dict(zip(names, self.percentiles, strict=True))
        return {"pairs": self.pairs, "min": self.least, **values, "max": self.most}


class Effects(Value, frozen=True, kw_only=True):
    """What two thresholds do, as shares of pairs."""

    merge: float
    related: float
    merged: float
    """Share of pairs that are one which are merged without a judge."""
    wrongly_merged: float
    """Share of related and unrelated pairs."""
    compared: float
    """Share of pairs that are one which reach the related threshold."""
    compared_in_vain: float
    """Share of unrelated pairs."""

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def distribution(similarities: Sequence[float]) -> Distribution:
    """Return the distribution of some similarities, at least one."""
    ordered = sorted(similarities)
    return Distribution(
        pairs=len(ordered),
        least=round(ordered[0], 4),
        percentiles=tuple(round(ordered[round(share * (len(ordered) - 1))], 4) for share in PERCENTILES),
        most=round(ordered[-1], 4),
    )


def suggest(bands: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return merge_threshold and related_threshold, related < merge <= 1, in hundredths."""
    others = sorted([*bands[RELATED], *bands[UNRELATED]])
    let_through = math.floor(WRONG_MERGES_MAX * len(others))
    highest = others[-1 - let_through]
    merge = min(1.0, max(0.02, (math.floor(100 * highest) + 1) / 100))
    candidates = [step / 100 for step in range(1, round(100 * merge))]
    related = max(candidates, key=lambda one: (_share(bands[ONE], one) - _share(bands[UNRELATED], one), -one))
    return merge, related


def effects(bands: Mapping[str, Sequence[float]], merge: float, related: float) -> Effects:
    """Return what thresholds do to the pairs."""
    return Effects(
        merge=merge,
        related=related,
        merged=_share(bands[ONE], merge),
        wrongly_merged=_share([*bands[RELATED], *bands[UNRELATED]], merge),
        compared=_share(bands[ONE], related),
        compared_in_vain=_share(bands[UNRELATED], related),
    )


def problems(shares: Effects) -> list[str]:
    """Return what keeps thresholds from separating the bands, as sentences."""
    sentences = []
    if shares.wrongly_merged > CHECK_WRONG_MERGES_MAX:
        sentences.append(
            f"merge_threshold {shares.merge:g} is too low: {shares.wrongly_merged:.0%} of the pairs that are different "
            "facts reach it, and one of each would be retired"
        )
    if shares.compared < CHECK_COMPARED_MIN:
        sentences.append(
            f"related_threshold {shares.related:g} is too high: only {shares.compared:.0%} of the pairs that are one "
            "fact reach it, and the others would be stored twice"
        )
    if shares.compared_in_vain > CHECK_UNRELATED_MAX:
        sentences.append(
            f"related_threshold {shares.related:g} is too low: {shares.compared_in_vain:.0%} of the unrelated pairs "
            "reach it, and each would be judged in vain"
        )
    return sentences


def _share(similarities: Sequence[float], least: float) -> float:
    return round(sum(one >= least for one in similarities) / len(similarities), 4)
