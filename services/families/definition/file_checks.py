"""Definitions of which the files of processes say different things, as `loomlog doctor` shows them.

Before: services.py. After: the events that observation.py sends.
"""

from loomlog.services.core.check import OK, WARN, Check
from loomlog.services.core.plain_text import pluralize
from loomlog.services.families.definition.limits import OBSERVED_FOR_MS
from loomlog.services.families.definition.state import Line
from loomlog.services.families.definition.table import NAME
from loomlog.services.stream.entities.replicas import Replicas

FILES = "files"
LISTED_MAX = 5


def check_files(replicas: Replicas, now_ms: int) -> Check:
    """Check whether the processes have told the same contents of their files lately."""
    since_ms = now_ms - OBSERVED_FOR_MS
    lines = [entity.state for entity in replicas.entities(NAME, "") if isinstance(entity.state, Line)]
    differing = [line for line in lines if line.static is not None and line.static.differs_since(since_ms)]
    if not differing:
        return Check(name=FILES, state=OK, text="all processes have the same definitions in their files")
    listed = [f"{line.kind} {line.name}: {_tellers(line, since_ms)}" for line in differing[:LISTED_MAX]]
    if len(differing) > len(listed):
        listed.append(f"and {len(differing) - len(listed)} more")
    text = f"{pluralize(len(differing), 'definition')} with different contents in the files of different processes"
    remedy = "\n".join([*listed, "Give all processes the same files and restart them."])
    return Check(name=FILES, state=WARN, text=text, remedy=remedy)


def _tellers(line: Line, since_ms: int) -> str:
    """Return the processes that differ, with the start of the hash of what they told."""
    observers = line.static.observers if line.static is not None else ()
    return ", ".join(f"{name} has {digest.hex()[:8]}" for name, digest, at_ms in observers if at_ms >= since_ms)
