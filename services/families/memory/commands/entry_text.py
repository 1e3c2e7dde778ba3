"""Entries of memory as text: a value, who changed it, and where a fact was learnt.

Before: reads.py, changes.py, with the JSON of the API. After: the terminal.
"""

import json
from collections.abc import Mapping
from typing import Any

from loomlog.services.cli.terminal.formatting import pluralize, size

COMMON_ORIGINS = frozenset({"operator", "agent_explicit"})
"""Origins that follow from who it was: a principal, or an agent."""


def value_text(value: Any) -> str:
    """Format a value whole: a text as it is, everything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def author_text(source: Mapping[str, Any] | None) -> str:
    """Format who made a change: an agent or a principal, with its origin where that says more."""
    source = source or {}
    who, origin = source.get("agent") or source.get("principal") or "", source.get("origin") or ""
    if not who or origin in COMMON_ORIGINS:
        return who or origin or "-"
    return f"{who} ({origin})"


def call_text(source: Mapping[str, Any] | None) -> str:
    """Format where in a run a change was made: `turn 2, call 1`; empty outside of runs."""
    parts = [f"{name} {number}" for name in ("turn", "call") if (number := (source or {}).get(name))]
    return ", ".join(parts)


def change_text(entry: Mapping[str, Any]) -> str:
    """Format the last change of an entry: when, by whom, in which call of which run."""
    source = entry.get("source") or {}
    call = call_text(source)
    in_run = f" in run {source['run_id']}" + (f", {call}" if call else "") if source.get("run_id") else ""
    return f"{entry['updated_at']} by {author_text(source)}{in_run}"


def fact_text(provenance: Mapping[str, Any] | None) -> str:
    """Format what a fact is and where it was learnt; empty for a note."""
    if not provenance:
        return ""
    parts = [f"{provenance.get('class') or 'fact'} by {provenance.get('origin') or '-'}"]
    if provenance.get("source_run_id"):
        parts.append(f"learnt in run {provenance['source_run_id']}")
    if provenance.get("source_session_id"):
        parts.append(f"session {provenance['source_session_id']}")
    parts += [
        f"{span['run_id']} seq {span['seq']}, characters {span['start']} to {span['end']}"
        for span in provenance.get("spans") or ()
    ]
    return "; ".join(parts)


def usage_text(usage: Mapping[str, int]) -> str:
    """Format what a scope holds: `1.2 KiB of 1.0 MiB in 3 keys`."""
    quota = usage["quota_bytes"]
    share = f" of {size(quota)} ({100 * usage['bytes'] / quota:.0f} %)" if quota > 0 else ""
    return f"{size(usage['bytes'])}{share} in {pluralize(usage['keys'], 'key')}"


def rank_text(hit: Mapping[str, Any], half: str) -> str:
    """Format the place of a hit in one half of a search, `lexical` or `semantic`."""
    place = (hit.get("ranks") or {}).get(half)
    return "-" if place is None else str(place)


def score_text(score: float | None) -> str:
    """Format a score; a dash where there is none."""
    return "-" if score is None else f"{score:.3f}"
