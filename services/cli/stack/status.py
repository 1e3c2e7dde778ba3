"""What runs in a state folder, seen from outside: `loomlog status`.

Before: the command line.  After: record, processes.
"""

from dataclasses import dataclass

from loomlog.services.cli.stack.home import Home
from loomlog.services.cli.stack.processes import ProcessIdentity, find
from loomlog.services.cli.stack.record import ChildRecord, RecordDamaged, StackRecord, load_record, lock_state


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatus:
    """`supervised`: a supervisor lives. `alive`: the children whose process really runs, supervised or left over."""

    supervised: bool
    supervisor: ProcessIdentity | None
    record: StackRecord | None
    damage: str
    alive: tuple[ChildRecord, ...]

    @property
    def half_dead(self) -> bool:
        """Children without a supervisor: `loomlog down` (or the next `up`) stops them."""
        return bool(self.alive) and not self.supervised


def stack_status(home: Home) -> StackStatus:
    """Reads two files and a process per child. Blocking, but for milliseconds."""
    lock = lock_state(home.lock)
    damage = ""
    try:
        record = load_record(home.record)
    except RecordDamaged as error:
        record, damage = None, str(error)
    children = record.children if record is not None else ()
    alive = tuple(child for child in children if child.identity is not None and find(child.identity) is not None)
    return StackStatus(supervised=lock.held, supervisor=lock.holder, record=record, damage=damage, alive=alive)
