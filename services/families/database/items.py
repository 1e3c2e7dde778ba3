"""Rows of databases: the changes since the last copy, from which any process makes the file, and the databases.

    change     by scope and revision: the pages. Rows go when they are rolled back, dropped, or in a copy
    copy       by scope: the last full copy
    database   by scope: its size. key_a is the scope, key_b its id; the number is the size in bytes

Before: the projection of entities. After: page_store.py, views of operators.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from loomlog.connectors.sqlite.pages import PAGE_BYTES
from loomlog.schemas.generated.database_events import (
    SqlChanged,
    SqlCopied,
    SqlDropped,
    SqlRowsRemoved,
    SqlTransactionEnded,
)
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Item
from loomlog.services.families.database.state import Database, DatabaseEvent
from loomlog.services.families.memory.author import aggregate_name

CHANGE_ITEM, COPY_ITEM, DATABASE_ITEM = "change", "copy", "database"
REVISION_DIGITS = 19


def change_prefix(name: str) -> str:
    """Return the beginning of the ids of the changes of an aggregate, by its name within the tenant."""
    return f"{name}#"


def change_id(name: str, revision: int) -> str:
    """Return the id of a change; in the order of their bytes ids are in the order of revisions."""
    return f"{change_prefix(name)}{revision:0{REVISION_DIGITS}}"


def items(database: Database, event: DatabaseEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    name = aggregate_name(event.scope, event.scope_id)
    match event:
        case SqlChanged():
            rows = [_change_row(name, event)] if event.revision > event.previous_revision else []
            return rows if event.root_run_id else [*rows, _database_row(name, database, envelope)]
        case SqlTransactionEnded(committed=True, depth=0):
            return [_database_row(name, database, envelope)]
        case SqlRowsRemoved():
            revisions = range(event.first, event.last + 1)
            return [Item(kind=CHANGE_ITEM, id=change_id(name, revision)) for revision in revisions]
        case SqlCopied():
            document = {"revision": event.revision, "chain": event.chain, "copy_chain": event.copy_chain} | _pages(
                event
            )
            return [Item(kind=COPY_ITEM, id=name, document=orjson.dumps(document).decode())]
        case SqlDropped():
            return [Item(kind=COPY_ITEM, id=name), Item(kind=DATABASE_ITEM, id=name)]
        case _:
            return ()


def _change_row(name: str, event: SqlChanged) -> Item:
    document = orjson.dumps({"revision": event.revision, "chain": event.chain} | _pages(event)).decode()
    return Item(kind=CHANGE_ITEM, id=change_id(name, event.revision), number=float(event.revision), document=document)


def _pages(event: SqlChanged | SqlCopied) -> dict[str, Any]:
    return {"pages": event.pages, "blobs": [blob.to_avro() for blob in event.blobs]}


def _database_row(name: str, database: Database, envelope: Envelope) -> Item:
    size = database.head.page_count * PAGE_BYTES
    document = {"bytes": size, "revision": database.head.revision, "updated_at_ms": envelope.at_ms}
    return Item(
        kind=DATABASE_ITEM,
        id=name,
        key_a=database.scope,
        key_b=database.scope_id,
        number=float(size),
        document=orjson.dumps(document).decode(),
    )
