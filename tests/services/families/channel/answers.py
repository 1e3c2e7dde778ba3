"""Which event of a decision answers its command."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.channel_events import MessagesDropped, MessagesLeased, MessagesSurfaced, WatchReported
from loomlog.schemas.generated.entity_events import CommandHadNoEffect


def answer_event(events: Sequence[Any]) -> Any:
    """Return the event of a decision that answers its command; None when the command had no effect.

    The others are what was due, what was pushed out, and what calls got that waited.
    """
    return next((event for event in reversed(events) if not _is_beside(event)), None)


def _is_beside(event: Any) -> bool:
    match event:
        case MessagesLeased(is_wait_over=is_wait_over):
            return is_wait_over
        case MessagesSurfaced() | MessagesDropped() | WatchReported() | CommandHadNoEffect():
            return True
    return False
