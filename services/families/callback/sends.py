"""An attempt of a callback, on its way to the process that makes it.

It is no command to an aggregate: the outbox hands it to the receiver of this name in its own process
(services/stream/entities/hosting.py). Lost with the process, the aggregate's timer begins the attempt again.

Before: the outbox. After: posts.py.
"""

from collections.abc import Sequence

from loomlog.schemas.generated.callback_events import CallbackRequested, CallbackStarted
from loomlog.schemas.records import Value
from loomlog.services.core.families import Send
from loomlog.services.families.callback.state import Callback, CallbackEvent

RECEIVER = "http"
"""Name of the receiver of attempts."""


class CallbackPost(Value, frozen=True, kw_only=True):
    """An attempt that is due."""

    run_id: str
    hook: int
    attempt: int


def sends(callback: Callback, event: CallbackEvent) -> Sequence[Send]:
    """Return the attempt that begins with an event."""
    match event:
        case CallbackRequested():
            return [_send(event.run_id, event.hook, 1)]
        case CallbackStarted():
            return [_send(event.run_id, event.hook, event.attempt)]
    return ()


def _send(run_id: str, hook: int, attempt: int) -> Send:
    return Send(to=RECEIVER, command=CallbackPost(run_id=run_id, hook=hook, attempt=attempt))
