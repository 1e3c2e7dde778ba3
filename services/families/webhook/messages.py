"""The message of a delivery: under which commands it is published and its refusal noted, and which queue gets it.

The reader of loom.ingress publishes it once the webhook has taken the delivery. Nothing is noted of a message that is
published: its own event says so. A refusal is, because the id of the delivery counts as new again then.

Before: ingress_reader.py publishes, receiving.py waits for it. After:
services/families/channel/operations.py.
"""

from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.access import resolve_queue
from loomlog.services.families.channel.caller import FAMILY_NAME as CHANNEL_FAMILY
from loomlog.services.families.channel.caller import ChannelCaller, Declarations, Origin

PUBLISH_STEP, REFUSED_STEP = ".publish", ".done"
"""What is added to the id of a delivery's command for the message, and for the note that it was refused."""


def queue_of_message(declarations: Declarations, tenant: str, channel: str, user_id: str) -> str:
    """Return the full id of the queue that gets the messages of a webhook; empty when there is none.

    `user_id`: whom the body is about, and so whose queue it is in a channel with one for each user or agent.
    """
    declared = declarations.find(tenant, channel)
    if declared is None:
        return ""
    caller = ChannelCaller(
        tenant=tenant, origin=Origin.DELIVERY, subject="", command_id="", issued_at_ms=0, user_id=user_id
    )
    try:
        queue = resolve_queue(declared, caller, user_id)
    except Refused:
        return ""
    return aggregate_id(CHANNEL_FAMILY, queue.tenant, queue.aggregate)
