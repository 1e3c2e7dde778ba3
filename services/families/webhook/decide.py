"""Decisions of a webhook: each delivery is taken once, and so many a minute.

    ReceiveDelivery   taken, or repeated, or too many
    RejectDelivery    requests that were refused before they came here, such as those with a bad signature
    NoteRunEnded      what became of a delivery; the id of one whose run was refused counts as new again

The limit is a bucket: a delivery costs 60,000, each millisecond adds the deliveries a minute, and it holds the burst.
Whole numbers keep it exact, and a changed limit applies to the next delivery.

A run is started by the outbox (`sends`), so it starts once however often the event is sent.

Before: ingress_reader.py. After: state.py; items.py has the rows.
"""

from collections.abc import Sequence

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import ContentBlock, RunOptions, Segment
from loomlog.schemas.generated.webhook_commands import NoteRunEnded, ReceiveDelivery, RejectDelivery
from loomlog.schemas.generated.webhook_events import DeliveryRejected, DeliveryRepeated, EventReceived, HookDispatched
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import FROM_OUTBOX, At, Send
from loomlog.services.families.webhook import limits
from loomlog.services.families.webhook.state import (
    Webhook,
    WebhookEvent,
    begun_channel,
    begun_run,
    delivery_key,
    run_id_of,
)
from loomlog.services.families.webhook.verdicts import REJECTED_RATE

COST = 60_000
"""What a delivery costs: the milliseconds of a minute."""
SPAWN, CHANNEL = "spawn", "channel"
GOAL_KIND = "webhook_payload"
"""Label of the goal as an untrusted block; the model is shown `untrusted`, since it is none of the known labels."""
TEXT_CHARACTERS_MAX = 2_000
"""Characters of a verdict's detail, and of the message of a refusal."""
SHOWN = ("def_id", "source_position", "replay_of", "by", "agent", "user_id", "user_tier", "channel", "earlier_run_id")
"""Fields of a delivery that are neither content nor free text."""
SHOWN_CHARACTERS_MAX = 512
Command = ReceiveDelivery | RejectDelivery | NoteRunEnded


def decide(webhook: Webhook, command: Command, at: At) -> Sequence[WebhookEvent | CommandRefused]:
    """Return the events that follow."""
    match command:
        case ReceiveDelivery():
            return [_receive(webhook, command, at)]
        case RejectDelivery():
            return [
                DeliveryRejected(
                    name=command.name,
                    delivery_id=printable(command.delivery_id, limits.DELIVERY_ID_CHARACTERS_MAX),
                    verdict=printable(command.verdict, TEXT_CHARACTERS_MAX),
                    detail=printable(command.detail, TEXT_CHARACTERS_MAX),
                    count=max(1, command.count),
                    received_at_ms=command.received_at_ms,
                )
            ]
        case NoteRunEnded():
            return [_note(webhook, command)]


def _receive(
    webhook: Webhook, command: ReceiveDelivery, at: At
) -> EventReceived | DeliveryRepeated | DeliveryRejected | CommandRefused:
    if problem := _problem(command):
        return problem
    delivery_id = command.delivery_id
    if command.replay_of:
        delivery_id = f"replay:{command.replay_of}:{webhook.number + 1}"
    elif (begun := webhook.find(delivery_key(delivery_id))) is not None:
        return _repeated(command, begun_run(begun), begun_channel(begun))
    elif command.is_known:
        return _repeated(command, command.earlier_run_id, "" if command.earlier_run_id else command.channel)
    level = left(webhook, at.at_ms, command.requests_per_minute, command.burst)
    if level < COST and not command.replay_of:
        return DeliveryRejected(
            name=command.name,
            delivery_id=delivery_id,
            verdict=REJECTED_RATE,
            detail="the limit of this webhook is reached",
            received_at_ms=command.received_at_ms,
            retry_after_s=-(-(COST - level) // (per_minute(command.requests_per_minute) * 1000)),
        )
    return copy_as(
        EventReceived,
        command,
        delivery_id=delivery_id,
        run_id=run_id_of(webhook.id, at.command_id) if command.delivery == SPAWN else "",
        number=webhook.number + 1,
        level=level if command.replay_of else level - COST,
    )


def printable(text: str, length: int) -> str:
    """Return the beginning of a text, without characters that no row can hold."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:length])


def _problem(command: ReceiveDelivery) -> CommandRefused | None:
    expected = limits.DELIVERY_ID_CHARACTERS_MAX
    if not 1 <= len(command.delivery_id) <= expected or not command.delivery_id.isprintable():
        return CommandRefused(
            code="bad_delivery", message=f"delivery_id: expected 1 to {expected} printable characters"
        )
    for name in SHOWN:
        text: str = getattr(command, name)
        if len(text) > SHOWN_CHARACTERS_MAX or not text.isprintable():
            expectation = f"expected at most {SHOWN_CHARACTERS_MAX} printable characters"
            return CommandRefused(code="bad_delivery", message=f"{name}: {expectation}")
    needed = {SPAWN: command.agent, CHANNEL: command.channel}.get(command.delivery, "")
    if not needed:
        return CommandRefused(
            code="bad_delivery", message="expected delivery spawn with an agent, or channel with a channel"
        )
    if (size := _size(command)) > limits.EVENT_BYTES_MAX:
        return CommandRefused(
            code="payload_too_large", message=f"the delivery has {size} bytes: at most {limits.EVENT_BYTES_MAX} fit"
        )
    return None


def _size(command: ReceiveDelivery) -> int:
    """Return the bytes of all texts of a delivery."""
    values: list[str] = [getattr(command, name) for name in command.__struct_fields__ if name != "envelope"]
    texts = [value for value in values if isinstance(value, str)]
    for pairs in (command.run_metadata, command.metadata):
        texts += [*pairs, *pairs.values()]
    texts += [*command.credentials, *command.on_complete, *command.after]
    return sum(len(text.encode(errors="replace")) for text in texts)


def _repeated(command: ReceiveDelivery, run_id: str, channel: str) -> DeliveryRepeated:
    return DeliveryRepeated(
        name=command.name,
        delivery_id=command.delivery_id,
        run_id=run_id,
        channel=channel,
        received_at_ms=command.received_at_ms,
    )


def per_minute(requests_per_minute: int) -> int:
    """Return the deliveries a minute of a limit; 0 or less: the default."""
    return min(requests_per_minute if requests_per_minute > 0 else limits.REQUESTS_PER_MINUTE, _MAX)


def left(webhook: Webhook, at_ms: int, requests_per_minute: int, burst: int) -> int:
    """Return what is left for deliveries at a time, COST for each. A clock that goes back adds nothing."""
    room = min(burst if burst > 0 else limits.BURST, _MAX) * COST
    if webhook.level < 0:
        return room
    passed_ms = max(0, at_ms - webhook.level_at_ms)
    return min(room, webhook.level + passed_ms * per_minute(requests_per_minute))


_MAX = limits.REQUESTS_PER_MINUTE_MAX


def _note(webhook: Webhook, command: NoteRunEnded) -> HookDispatched | CommandRefused:
    if command.run_id and not ID_PATTERN.match(command.run_id):
        return CommandRefused(code="invalid_run", message=f"{printable(command.run_id, 80)!r} is no id of a run")
    if command.delivery_id:
        key = delivery_key(command.delivery_id)
        key = key if webhook.find(key) is not None else ""
    else:
        key = webhook.find_run(command.run_id)
    return HookDispatched(
        name=command.name,
        delivery_key=key,
        run_id=command.run_id,
        status=printable(command.status, TEXT_CHARACTERS_MAX),
        code=printable(command.code, TEXT_CHARACTERS_MAX),
        message=printable(command.message, TEXT_CHARACTERS_MAX),
    )


def sends(webhook: Webhook, event: WebhookEvent) -> Sequence[Send]:
    """Return the start of the run of a delivery."""
    if not isinstance(event, EventReceived) or not event.run_id:
        return ()
    goal = ContentBlock(type="untrusted-block", kind=GOAL_KIND, text=event.goal, blob=event.goal_blob)
    options = RunOptions(
        user_tier=event.user_tier,
        metadata=event.metadata,
        payload_metadata=event.run_metadata,
        credentials=event.credentials,
        operator_key_restricted=event.operator_key_restricted,
        on_complete=event.on_complete,
        trigger=webhook.id,
    )
    start = StartRun(
        envelope=FROM_OUTBOX,
        agent=event.agent,
        segments=(Segment(role="user", content=(goal,)),),
        run_id=event.run_id,
        user_id=event.user_id,
        options=options,
        after=event.after,
    )
    return [Send(to="run", command=start)]
