"""Pairs of facts with a label: what a judge should answer, and what vectors should tell apart.

    same        the same thing in other words, with the same value
    newer       the same thing with a newer value: it replaces the known one
    other       another thing of the same person, or the same thing of another
    far         nothing in common
    invented    as `other`, but the source does not say what the new fact says

Before: judge.py, calibrate.py. After: themes.py.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

from loomlog.schemas.records import Value
from loomlog.services.cli.errors import UsageError
from loomlog.services.families.memory.commands.evaluation.dataset import (
    check_fields,
    read_json_lines,
    text_in,
)
from loomlog.services.families.memory.commands.evaluation.generator import format_phrase
from loomlog.services.families.memory.commands.evaluation.themes import (
    ABOUT_PROJECTS,
    PEOPLE,
    PERSONAL,
    PROJECTS,
    Theme,
)

SAME, NEWER, OTHER, FAR, INVENTED = "same", "newer", "other", "far", "invented"
LABELS = (SAME, NEWER, OTHER, FAR)
PAIRS_MAX = 20_000
CLUSTER_OWNERS = 3


class Pair(Value, frozen=True, kw_only=True):
    """Two facts, the second known before the first. `quote`: the passage that the new one was taken from."""

    new: str
    known: str
    label: str
    quote: str = ""


def labelled_pairs(seed: int = 1) -> list[Pair]:
    """Return the pairs of a seed: of each label two for each theme of people and of projects."""
    random = Random(seed)
    pairs: list[Pair] = []
    for themes, owners, others in ((PERSONAL, PEOPLE, ABOUT_PROJECTS), (ABOUT_PROJECTS, PROJECTS, PERSONAL)):
        strangers = PROJECTS if owners is PEOPLE else PEOPLE
        for theme in themes:
            for _ in range(2):
                pairs += _pairs_of(theme, themes, owners, random)
                owner, value = random.choice(owners), random.choice(theme.values)
                far = random.choice(others)
                known = format_phrase(far.fact, random.choice(strangers), random.choice(far.values))
                new = format_phrase(theme.fact, owner, value)
                pairs.append(Pair(new=new, known=known, label=FAR, quote=format_phrase(theme.sentence, owner, value)))
    return pairs


def _pairs_of(theme: Theme, themes: Sequence[Theme], owners: Sequence[str], random: Random) -> Iterator[Pair]:
    owner, neighbour = random.sample(owners, 2)
    value, newer = random.sample([one for one in theme.values if one not in (owner, neighbour)], 2)
    other = random.choice([one for one in themes if one is not theme])
    fact, sentence = format_phrase(theme.fact, owner, value), format_phrase(theme.sentence, owner, value)
    again = format_phrase(theme.other_fact, owner, value)
    yield Pair(new=fact, known=again, label=SAME, quote=sentence)
    changed, now = format_phrase(theme.other_fact, owner, newer), format_phrase(theme.sentence, owner, newer)
    yield Pair(new=changed, known=fact, label=NEWER, quote=now)
    other_value = random.choice([one for one in other.values if one != owner])
    known = format_phrase(other.fact, owner, other_value)
    yield Pair(new=fact, known=known, label=OTHER, quote=sentence)
    of_neighbour = format_phrase(theme.other_fact, neighbour, value)
    yield Pair(new=fact, known=of_neighbour, label=OTHER, quote=sentence)
    yield Pair(new=changed, known=known, label=INVENTED, quote=sentence)


def cluster_pairs(seed: int = 1) -> list[Pair]:
    """Return the pairs within and between clusters: each is one thing of one owner, in several words and values.
    Clusters of one owner or of one theme are related.
    """
    random = Random(seed)
    clusters: list[tuple[str, str, list[str]]] = []
    for themes, owners in ((PERSONAL, PEOPLE), (ABOUT_PROJECTS, PROJECTS)):
        chosen = random.sample(owners, CLUSTER_OWNERS)
        for theme in random.sample(themes, 4):
            for owner in chosen:
                value, newer = random.sample([one for one in theme.values if one != owner], 2)
                texts = [format_phrase(theme.fact, owner, value), format_phrase(theme.other_fact, owner, value)]
                clusters.append((owner, theme.name, [*texts, format_phrase(theme.fact, owner, newer)]))
    pairs: list[Pair] = []
    for _, _, texts in clusters:
        pairs += [
            Pair(new=new, known=known, label=NEWER if new == texts[2] else SAME)
            for known, new in combinations(texts, 2)
        ]
    for (owner, theme_name, texts), (other_owner, other_theme, others) in combinations(clusters, 2):
        label = OTHER if owner == other_owner or theme_name == other_theme else FAR
        pairs.append(Pair(new=random.choice(others), known=random.choice(texts), label=label))
    return pairs


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of JSON lines {"a", "b", "label"}. Raises NotFound, UsageError."""
    pairs = []
    for number, line in read_json_lines(path, "--dataset"):
        try:
            check_fields(line, frozenset({"a", "b", "label"}))
            label = text_in(line, "label")
            if label not in LABELS:
                raise ValueError(f'"label" must be one of {", ".join(LABELS)}')
            pairs.append(Pair(known=text_in(line, "a"), new=text_in(line, "b"), label=label))
        except ValueError as problem:
            raise UsageError(f"{path}:{number}: {problem}.") from problem
    if len(pairs) > PAIRS_MAX:
        raise UsageError(f"--dataset: {path} has more than {PAIRS_MAX:,} pairs.")
    return pairs
