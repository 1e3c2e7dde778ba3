"""One line of `loomlog doctor` and of GET /v1/_doctor.

Before: services/application/health/components.py and families make them. After: services/cli/doctor/doctor.py and
services/api/process_handlers.py show them.
"""

from dataclasses import dataclass

OK, WARN, FAIL, OFF = "ok", "warn", "fail", "off"
"""`off`: the part is not in use here, so nothing can be said for it."""
SILENT_AFTER_S = 10.0
"""Seconds without a status after which a projector counts as down; it reports every two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line. `remedy` explains why it matters and what to do; empty when there is no problem."""

    name: str
    state: str
    text: str
    remedy: str = ""
