"""One line of `loomlog doctor`.

Before: checks.py and entity_checks.py make them. After: doctor.py shows them.
"""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line. `remedy` explains why it matters and what to do; empty when there is no problem."""

    name: str
    state: str
    text: str
    remedy: str = ""
