"""Messages that are published in the name of runs that have ended.

Before: services/families/ports/run_ends.py. After: operations.py.
"""

from typing import Any, Protocol

from loomlog.services.families.channel.api import ChannelPublish
from loomlog.services.families.channel.caller import ChannelCaller, Origin
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.run_ends import EndedRun


class Publisher(Protocol):
    """Publishes messages (operations.py)."""

    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> Any:
        """Publish a message. Raises Refused, Unavailable."""
        ...


class RunMessages:
    """Protocol MessagePublisher of ports/run_ends.py."""

    def __init__(self, publisher: Publisher, is_isolated: Isolation) -> None:
        self._publisher = publisher
        self._is_isolated = is_isolated

    async def publish(self, run: EndedRun, channel: str, value: Any) -> None:
        """Publish a message to a channel, and to no other. Raises Refused, Unavailable."""
        facts = run.facts
        caller = ChannelCaller(
            tenant=run.tenant,
            origin=Origin.AGENT,
            subject=facts.subject,
            command_id=run.command_id,
            issued_at_ms=run.ended_at_ms,
            user_id=facts.user_id,
            agent=facts.definition.name,
            publish=(channel,),
            subscribe=(),
            is_isolated=self._is_isolated(run.tenant, facts.subject),
            publisher=facts.user_id or facts.subject,
            positions=facts.positions,
        )
        await self._publisher.publish(ChannelPublish(channel=channel, value=value), caller)
