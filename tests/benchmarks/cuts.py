"""Costs that a profile showed and a change took away, as they were recorded with a figure when the change was made.

Before: scale_page.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`source` is the commit or document that has the figure."""

    change: str
    figure: str
    source: str


CUTS: Sequence[Cut] = (
    Cut(
        change="encoding: a writer compiled from each event's schema instead of a dict and a walk over the schema",
        figure="a fifth of a decision's CPU before; ModelReplied 13.7 to 4.0 us, ToolReturned 6.3 to 1.4 us",
        source="e059f44",
    ),
    Cut(
        change="values: frozen dataclasses whose `__init__` fills the slots",
        figure="a tenth of the engine's CPU before; 1.7 times as fast, 3 times for values that pass by",
        source="65c1458",
    ),
    Cut(
        change="folding: a run's facts are copied through a thawed twin of their class",
        figure="27 fields, seven of them changed: 2.8 to 1.1 us; one changed: 2.3 to 0.7 us",
        source="6c184f6",
    ),
    Cut(
        change="values: Structs of msgspec instead of frozen dataclasses with tricks",
        figure="18 fields: made in 1.6 to 0.7 us; facts of a run copied in 1.0 to 0.35 us; "
        "a state of 2 KB to bytes and back 135 to 8 us",
        source="decision 30",
    ),
    Cut(
        change="calls: no semaphore where all fit, no second look at the tools, no second callback of a task",
        figure="11 % of the engine's CPU",
        source="8b4b0e7",
    ),
    Cut(
        change="insights: ended runs are told in sums, a record a second, instead of a record each",
        figure="0.15 ms of insights and 0.06 ms of the runtime for each ended run before",
        source="ef625d1",
    ),
    Cut(
        change="projector: decoded before the term is looked at, COPY of many rows, pipelines, rows by position",
        figure="52-54 to 28-30 us an event in polls of 300; Postgres 24 to 19 us",
        source="0273ac4",
    ),
    Cut(
        change="api: the hub rests between polls without subscribers",
        figure="0.36 to 0.16 ms of CPU a run",
        source="docs/LIMITS.md, 8eaec79",
    ),
    Cut(
        change="tails that only read on wait a second for a record, not a twentieth",
        figure="an empty fetch costs broker and reader 0.7 ms of CPU; an idle stack computes a third",
        source="477612e",
    ),
    Cut(
        change="readers look a schema's ids up once, not at every poll",
        figure="4.1 to 0.7 us for each reader",
        source="ad1c1c1",
    ),
    Cut(
        change="the first characters of a model call leave at once, and a stream gathers only after it has spoken",
        figure="first text of one run, provider's after 50 ms: p50 87.2 to 61.8 ms",
        source="7fe77ec",
    ),
    Cut(
        change="appends and tails have request loops of their own over aiokafka's connections",
        figure="32 records in four partitions: a flush 0.38 to 0.2 ms of CPU, a poll 0.99 to 0.55 ms",
        source="1b044ba, decision 25",
    ),
    Cut(
        change="batches are packed with lz4",
        figure="9.2 to 7.1 KB of log a run",
        source="1b044ba, decision 25",
    ),
    Cut(
        change="projector: rows of small polls go as one JSON document a table, no trip for BEGIN and COMMIT",
        figure="eight events: 2.2 to 1.3 ms of its CPU, 3.4 to 2.0 ms in all; Postgres 1.4 to 1.2 ms",
        source="164fbd0",
    ),
)
