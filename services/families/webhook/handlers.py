"""The handlers of the operations on webhooks.

Before: services.py. After: deliveries.py reads rows; ingress.py appends.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.schemas.generated.webhook_events import DeliveryRejected, EventReceived
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.operation import Decrypt, read_rows
from loomlog.services.families.ports.ingress import IngressLog
from loomlog.services.families.webhook import api, verdicts
from loomlog.services.families.webhook.definition import DEFAULT_TENANT
from loomlog.services.families.webhook.deliveries import DeliveryRow
from loomlog.services.families.webhook.ingress import WebhookServices
from loomlog.services.families.webhook.state import FAMILY_NAME, REFUSED
from loomlog.services.families.webhook.waiting import AwaitedAnswers
from loomlog.services.stream.entities.replicas import Replicas


class WebhookHandlers:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(
        self,
        services: WebhookServices,
        ingress: IngressLog | None,
        replicas: Replicas,
        *,
        codec: Codec,
        decrypt: Decrypt,
        clock_ms: Callable[[], int],
    ) -> None:
        self._services = services
        self._ingress = ingress
        self._replicas = replicas
        self._codec = codec
        self._decrypt = decrypt
        self._clock_ms = clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.LIST_DELIVERIES: self.deliveries, api.REPLAY: self.replay}

    async def deliveries(self, call: Call[api.WebhookListDeliveries]) -> Answer[api.WebhookDeliveries]:
        """Return the last deliveries of a webhook; also of one that is disabled or deleted, while there are some."""
        tenant, name = call.input.tenant, call.input.name
        addressed = await self._services.find(tenant, name)
        owner = tenant or DEFAULT_TENANT if addressed is None else addressed.tenant
        positions = await self._services.own.settle(aggregate_id(FAMILY_NAME, owner, name))
        rows = await read_rows(self._services.rows.recent(owner, name, limit=call.input.limit, positions=positions))
        if not rows and addressed is None:
            raise Refused("unknown_webhook", f"there is no webhook {name[:80]!r}, and no delivery for it")
        shown = await self._decrypt([_delivery_fields(row) for row in rows], owner)
        deliveries = [api.WebhookDelivery(**fields) for fields in shown]
        return Answer(value=api.WebhookDeliveries(webhook_name=name, tenant_id=owner, deliveries=deliveries))

    async def replay(self, call: Call[api.WebhookReplay]) -> Answer[api.WebhookReplayed]:
        """Give a delivery again, with the definition as it is now. Its record is in loom.ingress for two weeks."""
        ingress = self._ingress
        assert ingress is not None, "processes with requests append to loom.ingress"
        tenant, name, delivery_id = call.input.tenant, call.input.name, call.input.delivery_id
        addressed = await self._services.find(tenant, name)
        definition = None if addressed is None else addressed.owned_by(addressed.tenant)  # administrators are of all
        if definition is None:
            raise Refused("unknown_webhook", f"there is no webhook {name[:80]!r} that takes requests")
        row = await read_rows(self._services.rows.find(definition.tenant, name, delivery_id))
        if row is None or not row.source_position:
            raise Refused("not_found", f"{delivery_id[:80]!r} was not taken, or its row is gone")
        original, now_ms = await self._original(ingress, row), self._clock_ms()
        command_id = hashed_token("webhook", call.command_id)
        submitted = replace(
            original,
            envelope=replace(original.envelope, command_id=command_id, issued_at_ms=now_ms),
            address=tenant,
            received_at_ms=now_ms,
            positions=self._services.positions(ingress, definition, tenant, now_ms=now_ms),
            replay_of=delivery_id,
            by=call.caller.subject,
        )
        answers = AwaitedAnswers([(self._replicas, definition.aggregate, command_id)])
        try:
            await ingress.append(definition.tenant, name, submitted)
            event = await answers.decision(asyncio.get_running_loop().time() + ingress.wait_s)
        finally:
            answers.close()
        return Answer(value=_replayed(name, delivery_id, event))

    async def _original(self, ingress: IngressLog, row: DeliveryRow) -> SubmitDelivery:
        """Return the record with which a delivery came."""
        place = Position.parse(row.source_position)
        gone = Refused(
            "not_found", f"the request of {row.delivery_id[:80]!r} is no longer kept: loom.ingress keeps two weeks"
        )
        records: list[Any] = []
        try:
            if await ingress.ranges.beginning_offset(place.topic, place.partition) > place.offset:
                raise gone
            read = await ingress.ranges.read(place.topic, place.partition, place.offset, place.offset + 1)
            async with read as chunks:
                async for chunk in chunks:
                    records += [record for record in chunk if record.offset == place.offset]
        except ConnectorError as error:
            raise Unavailable(describe_unreachable("the log", error), code="log_unavailable") from error
        try:
            original = self._codec.decode((records[0].value or b"") if records else b"").record
        except Undecodable as error:
            text = "this delivery was a CloudEvent of another producer: give it again from there"
            raise Refused("bad_delivery", text) from error
        if not isinstance(original, SubmitDelivery):
            raise gone
        return original


def _replayed(name: str, delivery_id: str, event: Any) -> api.WebhookReplayed:
    answer = api.WebhookReplayed(webhook_name=name, replay_of=delivery_id)
    match event:
        case EventReceived():
            return replace(answer, delivery_id=event.delivery_id, run_id=event.run_id, channel=event.channel)
        case DeliveryRejected():
            raise Refused("bad_delivery", f"{event.verdict}: {event.detail}")
        case _:
            return replace(answer, pending=True)


def _verdict(row: DeliveryRow) -> str:
    """Return what became of a delivery: one whose run or message was refused afterwards was not accepted."""
    if row.status != REFUSED:
        return row.verdict
    return verdicts.REJECTED_PUBLISH if row.channel else verdicts.REJECTED_DELIVERY


def _delivery_fields(row: DeliveryRow) -> dict[str, Any]:
    """Return the fields of WebhookDelivery that a row has, as they are stored."""
    fields = {
        "delivery_id": row.delivery_id,
        "verdict": _verdict(row),
        "received_at": format_rfc3339(row.received_at_ms or row.at_ms),
        "run_id": row.run_id,
        "channel": row.channel,
        "def_id": row.def_id,
        "status": row.status,
        "code": row.code,
        "detail": row.detail,
        "replay_of": row.replay_of,
        "by": row.by,
        "run_metadata": row.run_metadata,
        "position": row.position,
        "source_position": row.source_position,
    }
    fields = {name: value for name, value in fields.items() if value not in ("", None, {})}
    return {**fields, **({"count": row.count} if row.count > 1 else {})}
