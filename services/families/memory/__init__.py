"""The family of memory: what agents, applications and operators keep by key, each change with its source.

An aggregate is a scope: all keys of an agent, a user or a tenant. Its routes and its tool have the form that existing
clients know. Microservices append SetEntry and DeleteEntry records.

    author.py             who acts, and in which scope
    state.py, decide.py   the rules
    items.py              the rows: entries, their versions, scopes
    store.py              reads and writes of entries in a process
    api.py                the operations: routes, and ops of the tool Memory
    handlers.py           carries them out; entry_operations.py and search.py do, or backends.py elsewhere
    services.py           opens all of it in a process

Before: services/families/registry.py. After: projections/memory_index finds entries by their words and their meaning.
"""

from loomlog.schemas.generated.memory_commands import DeleteEntry, DropScope, SetEntry, SupersedeEntry
from loomlog.services.core.families import WHOLE_HISTORY, Family, Rules, inner_commands
from loomlog.services.families.memory.api import ENDPOINTS, OPERATIONS, TOOL
from loomlog.services.families.memory.author import aggregate_name, content_subject
from loomlog.services.families.memory.decide import decide as decide_memory
from loomlog.services.families.memory.decide import next_timer_ms
from loomlog.services.families.memory.items import VERSION_KEPT_MS
from loomlog.services.families.memory.items import items as memory_items
from loomlog.services.families.memory.refill import refill
from loomlog.services.families.memory.state import VERSION, MemoryScope, evolve, initial

_command = inner_commands(lambda command: aggregate_name(command.scope, command.scope_id))


FAMILY = Family(
    name="memory",
    summary="The memory of an agent, a user or a tenant: values by key.",
    rules=Rules(
        state=MemoryScope,
        initial=initial,
        decide=decide_memory,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(SetEntry, "set", "Set a key."),
        _command(DeleteEntry, "delete", "Delete a key."),
        _command(SupersedeEntry, "supersede", "Archive a key."),
        _command(DropScope, "drop", "Delete all keys of a scope."),
    ),
    content_subject=content_subject,
    items=memory_items,
    refill=refill,
    operations=OPERATIONS,
    endpoints=ENDPOINTS,
    tools=(TOOL,),
    start_check="loomlog.services.families.memory.services",
    kept_ms={"earlier versions of entries of memory": VERSION_KEPT_MS},
    services="loomlog.services.families.memory.services",
)
