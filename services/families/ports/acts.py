"""Acts: what operators and administrators do, recorded before it is done and at its end.

Before: services/application/dispatch.py, services/api/app.py. After: services/families/act/recording.py.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from loomlog.schemas.records import Value
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import Change

ResultT = TypeVar("ResultT")


class Act(Value, frozen=True, kw_only=True):
    """An act that is about to be carried out."""

    act_id: str
    operation: str
    caller: Caller
    tenant: str
    target: str = ""
    request: Any = None
    """Fields of the request, JSON."""


class ActRecorder(Protocol):
    """Records acts."""

    async def carry_out(self, act: Act, work: Callable[[], Awaitable[ResultT]], change: Change) -> ResultT:
        """Return the result of some work, recorded as an act; without a value in `change.after` that is what there is
        now. Raises what the work raises, and Refused(audit_unavailable) when nothing was done.
        """
        ...

    def note_refusal(self, operation: str, caller: Caller, tenant: str, code: str, target: str = "") -> None:
        """Note an act that was refused before it began."""
        ...
