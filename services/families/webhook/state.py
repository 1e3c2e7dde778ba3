"""State of a webhook: which deliveries it has taken lately, and how many more it may take now.

Before: decide.py has an event, or a row a state. After: decide.py.
"""

from collections.abc import Mapping
from typing import assert_never

from loomlog.schemas.generated.webhook_events import DeliveryRejected, DeliveryRepeated, EventReceived, HookDispatched
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import Value, replace
from loomlog.services.families.webhook.limits import GENERATION_MAX, GENERATIONS

VERSION = 1
"""Version of the fold."""
FAMILY_NAME = "webhook"
KEY_CHARACTERS = 16
"""Characters of the hash of a delivery id, 5 bits each."""
REFUSED = "refused"
"""Status of a delivery whose run or message was refused: its id counts as new again."""
WebhookEvent = EventReceived | DeliveryRepeated | DeliveryRejected | HookDispatched


class Webhook(Value, frozen=True, kw_only=True):
    """A webhook of a tenant."""

    id: str = ""
    """Full id of the aggregate."""
    number: int = 0
    """Deliveries taken so far."""
    level: int = -1
    """What is left for further deliveries, 60,000 for each; -1: as much as the burst."""
    level_at_ms: int = 0
    """When that was, UTC milliseconds."""
    generations: tuple[Mapping[str, str], ...] = ()
    """Hashes of delivery ids with what was begun: the token of a run, or `#` and a channel. The newest first."""

    def find(self, key: str) -> str | None:
        """Return what was begun for a delivery, by the hash of its id; None when it is not known here."""
        return next((one[key] for one in self.generations if key in one), None)

    def find_run(self, run_id: str) -> str:
        """Return the hash of the delivery that a run was begun for; empty when it is not known here."""
        token = run_id.removeprefix("r_")
        return next((key for one in self.generations for key, begun in one.items() if begun == token), "")

    @property
    def has_forgotten(self) -> bool:
        """Whether there were deliveries whose ids are not known here any more."""
        return self.number > sum(map(len, self.generations))


def initial(aggregate: str) -> Webhook:
    """Return a webhook without deliveries, by the full id of its aggregate: `webhook:<tenant>/<name>`."""
    return Webhook(id=aggregate)


def delivery_key(delivery_id: str) -> str:
    """Return the hash of the id of a delivery."""
    return hashed_token("delivery", delivery_id)[:KEY_CHARACTERS]


def run_id_of(aggregate: str, command_id: str) -> str:
    """Return the id of the run that the delivery of a command starts in a webhook."""
    return f"r_{hashed_token('webhook', aggregate, command_id)}"


def begun_run(begun: str) -> str:
    """Return the run of what was begun for a delivery; empty when it was published."""
    return "" if begun.startswith("#") else f"r_{begun}"


def begun_channel(begun: str) -> str:
    """Return the channel of what was begun for a delivery; empty when a run was started."""
    return begun[1:] if begun.startswith("#") else ""


def evolve(webhook: Webhook, event: WebhookEvent, at_ms: int) -> Webhook:
    """Return the webhook after an event."""
    match event:
        case EventReceived():
            begun = event.run_id.removeprefix("r_") if event.run_id else f"#{event.channel}"
            generations = _with(webhook.generations, delivery_key(event.delivery_id), begun)
            level_at_ms = max(at_ms, webhook.level_at_ms)
            return replace(
                webhook, number=event.number, level=event.level, level_at_ms=level_at_ms, generations=generations
            )
        case HookDispatched(status=status, delivery_key=key) if status == REFUSED and key:
            return replace(webhook, generations=tuple(_without(one, key) for one in webhook.generations))
        case DeliveryRepeated() | DeliveryRejected() | HookDispatched():
            return webhook
        case _:
            assert_never(event)


def _with(generations: tuple[Mapping[str, str], ...], key: str, begun: str) -> tuple[Mapping[str, str], ...]:
    if generations and len(generations[0]) < GENERATION_MAX:
        return ({**generations[0], key: begun}, *generations[1:])
    return ({key: begun}, *generations[: GENERATIONS - 1])


def _without(generation: Mapping[str, str], key: str) -> Mapping[str, str]:
    return {name: begun for name, begun in generation.items() if name != key} if key in generation else generation
