"""A read that comes again with other values compiles nothing: compiling costs ten times what the rest of it does."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Select

from loomlog.connectors.storage.postgres import StatementCache
from loomlog.projections import audit, entities, entity_items, interrupts, newest_frames, run_queries, transcript
from loomlog.projections.newest_frames import FrameFilter
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.tables import page_token


class CompilingReader:
    """Compiles as PostgresReader does, and finds nothing."""

    def __init__(self) -> None:
        self.statements = StatementCache("some_schema")

    async def fetch(self, statement: Select[Any]) -> list[tuple[Any, ...]]:
        self.statements.compile(statement)
        return []


AFTER = page_token(1, "r_1")
READS: dict[str, Callable[[Any, str, list[str]], Awaitable[Any]]] = {
    "run_by_id": lambda reader, name, names: run_queries.run_by_id(reader, name, name),
    "run_by_handle": lambda reader, name, names: run_queries.run_by_handle(reader, name, name, user_id=name),
    "list_runs": lambda reader, name, names: run_queries.list_runs(
        reader, name, RunFilter(agent=name, statuses=frozenset(names)), limit=len(names), after=AFTER
    ),
    "list_live_runs": lambda reader, name, names: run_queries.list_live_runs(reader, limit=len(names)),
    "count_active_runs": lambda reader, name, names: run_queries.count_active_runs(reader, name),
    "audit.find_run": lambda reader, name, names: audit.find_run(reader, name, name),
    "last_run_of_session": lambda reader, name, names: audit.last_run_of_session(reader, name, name),
    "transcript_of_session": lambda reader, name, names: transcript.transcript_of_session(
        reader, name, name, limit=len(names)
    ),
    "frames_of_run": lambda reader, name, names: transcript.frames_of_run(
        reader, name, name, from_seq=len(names), limit=len(names)
    ),
    "newest_frames": lambda reader, name, names: newest_frames.newest_frames(
        reader, name, FrameFilter(type=name, from_ms=len(names)), limit=len(names)
    ),
    "read_stream_start": lambda reader, name, names: transcript.read_stream_start(reader, name, name),
    "interrupt_by_id": lambda reader, name, names: interrupts.interrupt_by_id(reader, name, name, name),
    "next_offsets": lambda reader, name, names: entities.next_offsets(reader, name, range(len(names))),
    "load_entities": lambda reader, name, names: entities.load_entities(reader, names),
    "find_commands": lambda reader, name, names: entities.find_commands(reader, names),
    "due_timers": lambda reader, name, names: entities.due_timers(reader, range(len(names)), len(names)),
    "list_entities": lambda reader, name, names: entities.list_entities(reader, name, name, limit=len(names)),
    "load_items": lambda reader, name, names: entity_items.load_items(reader, name, name, name, names),
    "list_items": lambda reader, name, names: entity_items.list_items(
        reader, name, name, name, key_a=name, key_b=name, limit=len(names)
    ),
    "list_items_by_id": lambda reader, name, names: entity_items.list_items_by_id(
        reader, name, name, name, prefix=name, after=name, limit=len(names)
    ),
    "newest_items": lambda reader, name, names: entity_items.newest_items(reader, name, name, name, "key_a", names),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_read_with_other_values_compiles_nothing(read: Callable[[Any, str, list[str]], Awaitable[Any]]) -> None:
    reader: Any = CompilingReader()
    await read(reader, "one", ["a", "b"])
    compiled = reader.statements.compilations
    assert compiled > 0, "it reads at all"
    await read(reader, "another", ["c", "d", "e"])
    assert reader.statements.compilations == compiled
