"""Whether the sender of a request may publish to a channel that it names, such as one for the end of its run.

Before: services/application/application.py. After: services/families/channel/handlers.py.
"""

from typing import Protocol

from loomlog.services.core.access.decide import Caller


class PublishRights(Protocol):
    """The rights of the senders of requests."""

    def require_publisher(self, caller: Caller, channel: str) -> None:
        """Refuse a declared channel to which a request of the caller may not publish. Raises Refused."""
        ...
