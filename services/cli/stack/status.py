"""What runs in a state folder, seen from outside: `loomlog status`.

Before: the command line.  After: record, processes.
"""

from dataclasses import dataclass

from loomlog.services.cli.stack.home import Home
from loomlog.services.cli.stack.processes import ProcessIdentity, find_process
from loomlog.services.cli.stack.record import ChildRecord, InvalidStackRecord, StackRecord, load_record, read_lock_state


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatus:
    """`supervised`: a supervisor is alive. `alive`: the children whose process really runs, supervised or left over."""

    is_supervised: bool
    supervisor: ProcessIdentity | None
    record: StackRecord | None
    record_error: str
    running_children: tuple[ChildRecord, ...]

    @property
    def has_orphans(self) -> bool:
        """Whether there are children without a supervisor: `loomlog down` (or the next `up`) stops them."""
        return bool(self.running_children) and not self.is_supervised


def read_stack_status(home: Home) -> StackStatus:
    """Read the status from two files and a process per child. Blocking, but for milliseconds."""
    lock = read_lock_state(home.lock)
    damage = ""
    try:
        record = load_record(home.record)
    except InvalidStackRecord as error:
        record, damage = None, str(error)
    children = record.children if record is not None else ()
    alive = tuple(
        child for child in children if child.identity is not None and find_process(child.identity) is not None
    )
    return StackStatus(
        is_supervised=lock.is_held, supervisor=lock.holder, record=record, record_error=damage, running_children=alive
    )
