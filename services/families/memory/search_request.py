"""A search of a scope, and how it follows from the input of search and recall. Pure.

Before: search.py. After: ranking.py.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from loomlog.projections.memory_index.tables import DOCUMENT, FACT, NOTE
from loomlog.schemas.records import Value
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.api import TOP_K_DEFAULT, MemoryDedup, MemoryRank, MemoryRecall, MemorySearch
from loomlog.services.families.memory.ranking import Dedup, Rank

QUERY_CHARACTERS_MAX = 8_000
"""Characters of a query that are used."""
SOURCES: Mapping[str, int] = {"facts": FACT, "notes": NOTE, "documents": DOCUMENT}
HYBRID, LEXICAL, SEMANTIC = "hybrid", "lexical", "semantic"


class SearchRequest(Value, frozen=True, kw_only=True):
    """A search of a scope."""

    query: str
    top_k: int = TOP_K_DEFAULT
    prefix: str = ""
    sources: tuple[str, ...] = ()
    """Names in SOURCES; empty: all."""
    rank: Rank = Rank()
    dedup: Dedup = Dedup()
    mode: str = HYBRID
    """By words and meaning, or by one of them: `semantic` is refused where vectors cannot answer."""


def search_request(asked: MemorySearch) -> SearchRequest:
    """Return the search that is asked for. Raises Refused(missing_query)."""
    return SearchRequest(
        query=_query(asked.query),
        top_k=asked.top_k or TOP_K_DEFAULT,
        prefix=asked.prefix or "",
        sources=tuple(dict.fromkeys(asked.sources or ())),
        rank=Rank(**_given(asked.rank)),
        dedup=Dedup(**_given(asked.dedup)),
    )


def recall_request(asked: MemoryRecall) -> SearchRequest:
    """Return the search for facts that is asked for. Raises Refused(missing_query)."""
    return SearchRequest(query=_query(asked.query), top_k=asked.top_k or TOP_K_DEFAULT, sources=("facts",))


def _query(query: str) -> str:
    if not query.strip():
        raise Refused("missing_query", "query: expected the text to search for")
    return query[:QUERY_CHARACTERS_MAX]


def _given(options: MemoryRank | MemoryDedup | None) -> dict[str, Any]:
    """Return the options that are given, by name."""
    fields = {} if options is None else structs.asdict(options)
    return {name: value for name, value in fields.items() if value is not None}
