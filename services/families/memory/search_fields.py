"""Checks of the fields of search and recall, the same for requests and calls of tools. Pure.

Before: search.py. After: fields.py.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.projections.memory_index.tables import DOCUMENT, FACT, NOTE
from loomlog.schemas.records import Value
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.fields import flag_field, integer_field, refuse, text_field
from loomlog.services.families.memory.ranking import DEDUP_MODES, Dedup, Rank

TOP_K_DEFAULT, TOP_K_MAX = 10, 50
QUERY_CHARACTERS_MAX = 8_000
"""Characters of a query that are used."""
WEIGHT_MAX = 1_000.0
HALF_LIFE_HOURS_MAX = 1_000_000.0
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


def search_request(fields: Mapping[str, Any]) -> SearchRequest:
    """Return the search of the fields of an operation. Raises Refused(missing_query, invalid_sources,
    bad_request).
    """
    return SearchRequest(
        query=_query(fields),
        top_k=_top_k(fields),
        prefix=text_field(fields, "prefix", default=""),
        sources=_sources(fields.get("sources")),
        rank=_rank(fields.get("rank")),
        dedup=_dedup(fields.get("dedup")),
    )


def recall_request(fields: Mapping[str, Any]) -> tuple[SearchRequest, float]:
    """Return the search for facts, and the least score of one. Raises as `search_request`."""
    threshold = _number(fields, "threshold", "threshold", 0.0, least=-1.0, most=1.0)
    return SearchRequest(query=_query(fields), top_k=_top_k(fields), sources=("facts",)), threshold


def _query(fields: Mapping[str, Any]) -> str:
    query = fields.get("query")
    if query is None or (isinstance(query, str) and not query.strip()):
        raise Refused("missing_query", "query: expected the text to search for")
    return text_field(fields, "query")[:QUERY_CHARACTERS_MAX]


def _top_k(fields: Mapping[str, Any]) -> int:
    return integer_field(fields, "top_k", default=TOP_K_DEFAULT, least=1, most=TOP_K_MAX)


def _sources(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one in SOURCES for one in value):
        raise Refused("invalid_sources", f"sources: expected a list of {', '.join(SOURCES)}")
    return tuple(dict.fromkeys(value))


def _rank(value: Any) -> Rank:
    fields = _object(value, "rank", Rank.__struct_fields__)
    weights = {
        name: _number(fields, name, f"rank.{name}", getattr(Rank(), name), least=0.0, most=WEIGHT_MAX)
        for name in Rank.__struct_fields__
        if name != "recency_half_life_hours"
    }
    half_life = _number(
        fields,
        "recency_half_life_hours",
        "rank.recency_half_life_hours",
        Rank().recency_half_life_hours,
        least=0.001,
        most=HALF_LIFE_HOURS_MAX,
    )
    return Rank(**weights, recency_half_life_hours=half_life)


def _dedup(value: Any) -> Dedup:
    fields = _object(value, "dedup", Dedup.__struct_fields__)
    mode = fields.get("mode", Dedup().mode)
    if mode not in DEDUP_MODES:
        raise refuse(f"dedup.mode: expected one of {', '.join(DEDUP_MODES)}, not {str(mode)[:60]!r}")
    return Dedup(
        enabled=flag_field(fields, "enabled", default=False),
        threshold=_number(fields, "threshold", "dedup.threshold", Dedup().threshold, least=0.0, most=1.0),
        mode=mode,
    )


def _object(value: Any, name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refuse(f"{name}: expected an object with {', '.join(known)}")
    for field in value:
        if field not in known:
            hint = did_you_mean(str(field), list(known))
            raise refuse(f"{name}.{str(field)[:60]}: unknown, expected are {', '.join(known)}{hint}")
    return {field: one for field, one in value.items() if one is not None}


def _number(
    fields: Mapping[str, Any], name: str, shown_name: str, default: float, *, least: float, most: float
) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise refuse(f"{shown_name}: expected a number from {least:g} to {most:g}, not {str(value)[:60]}")
    return float(value)
