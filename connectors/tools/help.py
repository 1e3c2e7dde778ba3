"""Help topics: short texts about this server, which agents read and search with the Context tool.

A topic is a Markdown file, its name without .md is the topic's. Built-in ones are in help_topics/; those of an operator
are in the folder LOOMLOG_HELP_ROOT, and one with the name of a built-in topic replaces it. A file may begin with a
header:

    ---
    description: One line for the list of topics.
    aliases: other-name, another
    ---

Without a description the first line of text is taken; other keys of the header are ignored.

Before: context.py. After: nothing.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILT_IN_FOLDER = Path(__file__).with_name("help_topics")
BUILT_IN, OPERATOR = "built-in", "operator"
TOPIC_BYTES_MAX = 65_536
"""Bytes of one file: a model reads all of it."""
TOPICS_MAX, FOLDER_BYTES_MAX = 500, 4 * 1024 * 1024
"""Topics of a folder, and their bytes together: a search reads all of them."""
DESCRIPTION_CHARACTERS_MAX = 200
SNIPPET_CHARACTERS = 240
RESULTS_MAX = 8
WORDS_MAX = 16
"""Words of a query that count; each is one pass over all sections."""
NAME_WEIGHT, HEADING_WEIGHT, PHRASE_WEIGHT = 3.0, 2.0, 3.0
"""Weights of a word in the name of a topic and in a heading, and of the whole query, next to 1 for a word in a text."""
TOPIC_HINT = "Call help with topic for one of them, or with query to search."
QUERY_HINT = "Call help with the topic_slug of a result as topic for the whole text."
NO_RESULT_HINT = "No section has one of these words; help without arguments lists the topics."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpTopic:
    """A text about one subject; `source` is built-in or operator."""

    name: str
    description: str
    content: str
    source: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    topic: HelpTopic
    heading: str
    text: str
    folded_names: str
    folded_heading: str
    folded_text: str


class HelpTopics:
    """Topics by name, in any case, and by their aliases; of topics with one name the last counts."""

    def __init__(self, topics: Iterable[HelpTopic]) -> None:
        by_name = {topic.name.casefold(): topic for topic in topics}
        self._topics: Mapping[str, HelpTopic] = dict(sorted(by_name.items()))
        self._aliases = {alias.casefold(): topic for topic in self._topics.values() for alias in topic.aliases}
        self._sections = [section for topic in self._topics.values() for section in _sections(topic)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all topics, sorted."""
        return tuple(topic.name for topic in self._topics.values())

    def index(self) -> dict[str, Any]:
        """Return the list of topics."""
        rows = [{"name": one.name, "description": one.description, "source": one.source} for one in self.values()]
        return {"topics": rows, "count": len(rows), "hint": TOPIC_HINT}

    def values(self) -> Iterator[HelpTopic]:
        """Iterate over the topics, by name."""
        return iter(self._topics.values())

    def find(self, name: str) -> HelpTopic | None:
        """Return the topic with that name or alias."""
        folded = name.strip().casefold()
        return self._topics.get(folded) or self._aliases.get(folded)

    def search(self, query: str) -> dict[str, Any]:
        """Return the sections that have words of the query: those with more of them first, rare words count more."""
        folded = query.casefold()
        words = tuple(dict.fromkeys(_WORD.findall(folded)))[:WORDS_MAX]
        weights = {word: _rarity(word, self._sections) for word in words}
        phrase = " ".join(folded.split())
        ranked: list[tuple[int, float, int]] = []
        for number, section in enumerate(self._sections):
            matched = [word for word in words if _place_weight(section, word)]
            score = sum(weights[word] * _place_weight(section, word) for word in matched)
            if matched and phrase in section.folded_text:
                score += PHRASE_WEIGHT
            ranked += [(-len(matched), -score, number)] if matched else []
        results = [
            {
                "topic_slug": (section := self._sections[number]).topic.name,
                "heading": section.heading,
                "snippet": _snippet(section, max(words, key=lambda word: (word in section.folded_text, weights[word]))),
                "score": round(-score, 3),
            }
            for _, score, number in sorted(ranked)[:RESULTS_MAX]
        ]
        hint = QUERY_HINT if results else NO_RESULT_HINT
        return {"query": query, "mode": "substring", "results": results, "count": len(results), "hint": hint}


def load_help_topics(folder: Path | None = None) -> HelpTopics:
    """Return the built-in topics with those of the operator's folder. Raises ValueError when a file is not usable."""
    topics = [*_read_folder(BUILT_IN_FOLDER, BUILT_IN), *(_read_folder(folder, OPERATOR) if folder else ())]
    return HelpTopics(topics)


def parse_topic(name: str, text: str, source: str) -> HelpTopic:
    """Return the topic of a file. Raises ValueError when the header has no end."""
    header: dict[str, str] = {}
    body = text.replace("\r\n", "\n").lstrip("\ufeff")
    if body.startswith("---\n"):
        head, end, body = body[4:].partition("\n---\n")
        if not end:
            raise ValueError("the header begins with --- and has no line --- at its end")
        pairs = (line.partition(":") for line in head.splitlines())
        header = {key.strip().casefold(): value.strip().strip("\"'") for key, _, value in pairs}
    body = body.strip()
    aliases = header.get("aliases", "").strip("[]").split(",")
    return HelpTopic(
        name=name,
        description=(header.get("description") or _first_text(body))[:DESCRIPTION_CHARACTERS_MAX],
        content=body,
        source=source,
        aliases=tuple(alias.strip().strip("\"'") for alias in aliases if alias.strip()),
    )


def _read_folder(folder: Path, source: str) -> list[HelpTopic]:
    if not folder.is_dir():
        raise ValueError(f"the folder of help topics {folder} does not exist (LOOMLOG_HELP_ROOT)")
    files = sorted(path for path in folder.iterdir() if path.suffix == ".md")
    if len(files) > TOPICS_MAX:
        raise ValueError(f"{folder} has {len(files)} help topics; at most {TOPICS_MAX} are taken")
    topics = [_read_topic(path, source) for path in files]
    if (size := sum(len(topic.content) for topic in topics)) > FOLDER_BYTES_MAX:
        raise ValueError(f"the help topics of {folder} have {size} characters; at most {FOLDER_BYTES_MAX} are taken")
    return topics


def _read_topic(path: Path, source: str) -> HelpTopic:
    try:
        if not _NAME.fullmatch(path.stem):
            raise ValueError("the name must be 1 to 64 letters, digits and . _ - and begin with a letter or digit")
        with path.open("rb") as file:
            data = file.read(TOPIC_BYTES_MAX + 1)
        if len(data) > TOPIC_BYTES_MAX:
            raise ValueError(f"it has more than {TOPIC_BYTES_MAX} bytes")
        return parse_topic(path.stem, data.decode(), source)
    except UnicodeDecodeError:
        raise ValueError(f"the help topic {path} is not UTF-8") from None
    except OSError as error:
        raise ValueError(f"the help topic {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"the help topic {path} is not usable: {error}") from None


def _first_text(body: str) -> str:
    return next((line.strip() for line in body.splitlines() if line.strip() and not line.startswith("#")), "")


def _sections(topic: HelpTopic) -> Iterator[_Section]:
    """Split a topic at its headings; a # within a fenced block is no heading."""
    heading, lines, is_fenced = topic.name, list[str](), False
    parts: list[tuple[str, str]] = []
    for line in topic.content.splitlines():
        is_fenced ^= line.lstrip().startswith("```")
        if line.startswith("#") and not is_fenced:
            parts.append((heading, "\n".join(lines).strip()))
            heading, lines = line.lstrip("#").strip(), []
        else:
            lines.append(line)
    parts.append((heading, "\n".join(lines).strip()))
    names = " ".join((topic.name, *topic.aliases)).casefold()
    for title, text in parts:
        if text:
            yield _Section(
                topic=topic,
                heading=title,
                text=text,
                folded_names=names,
                folded_heading=title.casefold(),
                folded_text=" ".join(text.casefold().split()),
            )


def _place_weight(section: _Section, word: str) -> float:
    """Return how much a word counts in a section, without its rarity; 0 when the section does not have it."""
    return (
        NAME_WEIGHT * (word in section.folded_names)
        + HEADING_WEIGHT * (word in section.folded_heading)
        + (word in section.folded_text)
    )


def _rarity(word: str, sections: list[_Section]) -> float:
    count = sum(word in section.folded_text for section in sections)
    return math.log(1 + len(sections) / (1 + count))


def _snippet(section: _Section, word: str) -> str:
    """Return the part of a section's text around a word, on one line."""
    text = " ".join(section.text.split())
    place = max(0, text.casefold().find(word) - SNIPPET_CHARACTERS // 3)
    begin = text.rfind(" ", 0, place) + 1 if place else 0
    part = text[begin : begin + SNIPPET_CHARACTERS]
    return f"{'... ' if begin else ''}{part}{' ...' if begin + len(part) < len(text) else ''}"
