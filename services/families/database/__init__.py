"""The family of databases: the SQL database of a scope of memory, as the pages that its statements changed.

A statement is carried out by the process of its caller, on a file that is a cache; the log decides whether its pages
are the next change. So the log does not depend on what a statement meant, and every process makes the same file.

    state.py, decide.py   the rules
    items.py              the rows of changes, copies and databases
    page_store.py         pages into events and blobs, and back
    files.py              the files of this process
    api.py                the operations: ops of the tool Memory, and a route
    handlers.py           carries them out over operations.py
    services.py           opens all of it in a process

Before: services/families/registry.py. After: connectors/sqlite.
"""

from loomlog.schemas.generated.database_commands import (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
from loomlog.services.core.families import WHOLE_HISTORY, Family, Rules, inner_commands
from loomlog.services.families.database.api import OPERATIONS
from loomlog.services.families.database.decide import decide as decide_database
from loomlog.services.families.database.items import items as database_items
from loomlog.services.families.database.state import FAMILY_NAME, VERSION, Database, evolve, initial, next_timer_ms
from loomlog.services.families.database.subject import subject_of
from loomlog.services.families.memory.author import aggregate_name

_command = inner_commands(lambda command: aggregate_name(command.scope, command.scope_id))


FAMILY = Family(
    name=FAMILY_NAME,
    summary="The SQL database of a scope of memory, as the pages that its statements changed.",
    rules=Rules(
        state=Database,
        initial=initial,
        decide=decide_database,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(ChangeDatabase, "change", "Add what a statement wrote."),
        _command(BeginTransaction, "begin", "Begin a transaction."),
        _command(EndTransaction, "end", "End a transaction."),
        _command(DropDatabase, "drop", "Delete a database."),
        _command(PutCopy, "copy", "Add a full copy."),
    ),
    content_subject=lambda command: subject_of(command.scope, command.scope_id, command.envelope.subject),
    items=database_items,
    operations=OPERATIONS,
    services="loomlog.services.families.database.services",
)
