"""The family of webhooks: requests from outside, each taken once, that start a run or are published to a channel.

An aggregate is a webhook of a tenant. Definitions are in the definition store and in the files; a command brings what
its decision needs, so nothing is armed. Requests come by HTTP, are verified and appended to loom.ingress
(receiving.py); its reader makes the commands (ingress_reader.py). Anything else that writes
CloudEvents to loom.ingress is read the same way.

    signatures.py, secrets.py   the proof that a request carries
    bodies.py, mapping.py       what is taken from a body
    definition.py               which definition a webhook has
    state.py, decide.py         the rules
    items.py, deliveries.py     the rows, and reading them
    api.py, handlers.py         the operations of administrators, and what carries them out
    endpoints.py, cloud_event_endpoints.py, receiving.py   what senders ask
    commands.py                 the command line
    ingress.py, services.py     what a process has of webhooks, and its opening

Before: receiving.py, ingress_reader.py. After: the outbox starts runs.
"""

from loomlog.schemas.generated.webhook_commands import NoteRunEnded, ReceiveDelivery, RejectDelivery
from loomlog.services.core.families import WHOLE_HISTORY, Family, Rules, inner_commands
from loomlog.services.families.webhook.api import ENDPOINTS, OPERATIONS
from loomlog.services.families.webhook.decide import decide as decide_webhook
from loomlog.services.families.webhook.decide import sends as webhook_sends
from loomlog.services.families.webhook.items import items as webhook_items
from loomlog.services.families.webhook.state import FAMILY_NAME, VERSION, Webhook, evolve, initial

_command = inner_commands(lambda command: command.name)


FAMILY = Family(
    name=FAMILY_NAME,
    summary="A webhook: the deliveries that it has taken.",
    rules=Rules(state=Webhook, initial=initial, decide=decide_webhook, evolve=evolve, version=VERSION),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(ReceiveDelivery, "receive", "Take a delivery."),
        _command(RejectDelivery, "reject", "Note refused requests."),
        _command(NoteRunEnded, "note", "Note what became of a delivery."),
    ),
    # The subject is that of the run, so that its content keeps the form in which the delivery has it.
    content_subject=lambda command: str(command.user_id),
    sends=webhook_sends,
    items=webhook_items,
    operations=OPERATIONS,
    endpoints=ENDPOINTS,
    services="loomlog.services.families.webhook.services",
    note_run_end=NoteRunEnded,
)
