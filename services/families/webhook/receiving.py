"""Requests of webhooks: verified, appended to loom.ingress, acknowledged; then the decision is waited for.

    find         which webhook answers under an address; a disabled one is like none. It takes nothing by that:
                 a request needs its proof, a CloudEvent must come from the webhook's own tenant
    receive      proof, body and mapping are checked, the record is in the log, the answer says what became of it
    dry_run      what `receive` would say, without doing anything
    publish      CloudEvents of an authenticated caller

Broker and api suffice to accept: when the owner has not decided within a second, or the run has not begun, the answer
is 202 with `pending`. What was decided comes back with the events of the webhook, which this process reads anyway.

Answers of receivers have the form of the reference (surfaces 6.5): {"error": code, "detail"}, not that of other routes.

Before: endpoints.py. After: ingress_reader.py.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import UNSET

from loomlog.connectors.configuration.secret_registry import SecretRefused
from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.schemas.generated.channel_events import MessagePublished
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_events import RunRefused, RunStarted
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import NoteRunEnded, SubmitDelivery
from loomlog.schemas.generated.webhook_events import DeliveryRejected, DeliveryRepeated, EventReceived, HookDispatched
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import Value, replace
from loomlog.services.core.access.decide import Caller, has_scope
from loomlog.services.core.access.scopes import CHANNEL_PUBLISH, RUNS_CREATE
from loomlog.services.core.refusals import Refused, Unavailable, is_invalid_code
from loomlog.services.families.channel.access import require_publisher
from loomlog.services.families.channel.caller import FAMILY_NAME as CHANNEL_FAMILY
from loomlog.services.families.channel.caller import Declarations, Origin
from loomlog.services.families.channel.fields import value_text
from loomlog.services.families.channel.handlers import request_origin
from loomlog.services.families.opening import FamilyContext
from loomlog.services.families.ports.ingress import IngressLog
from loomlog.services.families.ports.run_watch import ExpectedRun
from loomlog.services.families.webhook import verdicts
from loomlog.services.families.webhook.api import (
    CloudEventAnswer,
    WebhookAnswer,
    WebhookRefusal,
    WebhookReport,
    WebhookRunPreview,
)
from loomlog.services.families.webhook.bodies import BodyInvalid, BodyTooLong, parse_body, unpack_body
from loomlog.services.families.webhook.cloud_events import CloudEvent
from loomlog.services.families.webhook.decide import CHANNEL, SPAWN
from loomlog.services.families.webhook.definition import (
    AddressedWebhook,
    WebhookDefinition,
)
from loomlog.services.families.webhook.ingress import WebhookServices
from loomlog.services.families.webhook.limits import DELIVERY_ID_CHARACTERS_MAX, INLINE_BYTES
from loomlog.services.families.webhook.mapping import (
    SEAL_PURPOSE,
    MappingInvalid,
    RunInput,
    credential_names,
    run_input,
    take_credentials,
)
from loomlog.services.families.webhook.messages import PUBLISH_STEP, REFUSED_STEP, queue_of_message
from loomlog.services.families.webhook.rejections import RejectionLog
from loomlog.services.families.webhook.secrets import proof_secrets
from loomlog.services.families.webhook.signatures import Covered, Unproven, check_proof, delivery_id
from loomlog.services.families.webhook.state import REFUSED, run_id_of
from loomlog.services.families.webhook.waiting import AwaitedAnswers
from loomlog.services.stream.encryption.subject_keys import NewerInstallationKey
from loomlog.services.stream.entities.replicas import Replicas

SYNC_DEFAULT_MS = 30_000
RETRY_SOON_S = 1
"""Seconds after which a sender may try again what passes quickly."""
RUN_REFUSALS: Mapping[str, tuple[int, str]] = {
    "unknown_user_tier": (400, "unknown_user_tier"),
    "token_limit_exceeded": (429, "token_limit_exceeded"),
}
"""Status and code of an answer by the code of a refused run; of others see `_lasting`."""
TOO_LARGE = "payload_too_large"
REJECTIONS: Mapping[str, tuple[int, str]] = {
    verdicts.REJECTED_RATE: (429, "rate_limited"),
    verdicts.REJECTED_BODY: (400, "bad_mapping"),
    verdicts.REJECTED_MAPPING: (400, "bad_mapping"),
    verdicts.REJECTED_PUBLISH: (503, "channel_unavailable"),
    verdicts.UNRESOLVABLE_SECRET: (503, "secret_unresolvable"),
}
"""The same by the verdict of a delivery; every other is 400 bad_delivery."""


class WebhookReply(Value, frozen=True, kw_only=True):
    """An answer to a sender."""

    status: int
    body: WebhookAnswer | WebhookRefusal
    retry_after_s: int = 0


class _Taken(Value, frozen=True, kw_only=True):
    """A request whose proof and body are in order."""

    definition: WebhookDefinition
    delivery_id: str
    input: RunInput
    text: str
    """The body, without credentials."""
    credentials: Mapping[str, str]


class _Rejected(Exception):
    """A request that is refused: a verdict and the answer."""

    def __init__(self, verdict: str, reply: WebhookReply, detail: str = "") -> None:
        super().__init__(detail)
        self.verdict, self.reply = verdict, reply

    @property
    def code(self) -> str:
        """Code of the answer."""
        return self.reply.body.code if isinstance(self.reply.body, WebhookRefusal) else ""


class WebhookReceiver:
    """Takes requests. What is for operators, and CloudEvents, raise Refused and Unavailable."""

    def __init__(
        self,
        context: FamilyContext,
        services: WebhookServices,
        ingress: IngressLog,
        rejections: RejectionLog,
        *,
        declarations: Declarations,
        channel_value_bytes: int,
    ) -> None:
        self._context = context
        self._services = services
        self._ingress = ingress
        self._rejections = rejections
        self._replicas = context.parts.replicas
        self._channel_replicas = context.parts.of(f"{CHANNEL_FAMILY}:").replicas
        self._declarations = declarations
        self._channel_value_bytes = channel_value_bytes
        self._clock_ms = context.clock_ms

    # --- receiving ---------------------------------------------------------------------------------------------------

    async def find(self, address: str, name: str) -> AddressedWebhook | None:
        """Return the webhook of an address; None also when webhooks are off. Raises Unavailable."""
        return await self._services.find(address, name)

    async def receive(
        self, addressed: AddressedWebhook, address: str, headers: Mapping[str, str], body: bytes, *, sync: bool
    ) -> WebhookReply:
        """Take a request; `headers` have names in lower case, `address` is the tenant in its address or empty."""
        try:
            taken = self._check(addressed, headers, body)
            submitted = await self._submission(taken, address)
        except _Rejected as rejected:
            self._note_rejected(addressed, rejected.verdict, headers, body, str(rejected))
            return rejected.reply
        definition = taken.definition
        waiting = self._waiting(definition, submitted.envelope.command_id, taken.input.user_id)
        try:
            try:
                await self._ingress.append(definition.tenant, definition.name, submitted)
            except Refused as refused:
                return _error(503, "runtime_unavailable", refused.message, retry_after_s=RETRY_SOON_S)
            reply = await self._decided(taken, waiting)
        finally:
            self._services.own.leave(definition.aggregate, waiting)
        setting, answer = definition.webhook.sync_response, reply.body
        starts_run = reply.status == 202 and isinstance(answer, WebhookAnswer) and answer.run_id is not UNSET
        if not sync or not starts_run or setting is None or not setting.enabled:
            return reply
        assert isinstance(answer, WebhookAnswer)
        return await self._ended(definition, answer, (setting.timeout_ms or SYNC_DEFAULT_MS) / 1000)

    def too_large(self, addressed: AddressedWebhook, headers: Mapping[str, str]) -> None:
        """Note a request whose body is over the limit."""
        self._note_rejected(addressed, verdicts.REJECTED_BODY, headers, b"", "the body is too large")

    def _note_rejected(
        self, addressed: AddressedWebhook, verdict: str, headers: Mapping[str, str], body: bytes, detail: str
    ) -> None:
        """Note a refused request under the id that it claims; nothing is recognised by that id."""
        claimed = delivery_id(addressed.webhook.auth, Covered(body=body), headers)
        self._rejections.note(addressed, verdict, claimed, detail)

    def _check(self, addressed: AddressedWebhook, headers: Mapping[str, str], body: bytes) -> _Taken:
        """Return what a request brings. Raises _Rejected."""
        block = addressed.webhook
        if block.auth.kind == "none" and not self._services.options.allow_unauthenticated:
            message = "LOOMLOG_WEBHOOKS_ALLOW_UNAUTHENTICATED is off"
            reply = _error(503, "unauthenticated_mode_disabled", message)
            raise _Rejected(verdicts.REJECTED_SIGNATURE, reply, message)
        try:
            secrets = proof_secrets(self._services.options.secrets, addressed)
        except SecretRefused as error:
            reply = _error(503, "secret_unresolvable", str(error), secret_env=error.variable)
            raise _Rejected(verdicts.UNRESOLVABLE_SECRET, reply, str(error)) from error
        proof = check_proof(block.auth, headers, body, secrets, now_s=self._clock_ms() // 1000)
        if isinstance(proof, Unproven):
            # The sender is not told why: who guesses at secrets would learn from it.
            raise _Rejected(verdicts.REJECTED_SIGNATURE, _error(401, "unauthorized"), proof.reason)
        identity = delivery_id(block.auth, proof, headers)
        if len(identity) > DELIVERY_ID_CHARACTERS_MAX or not identity.isprintable():
            message = f"the delivery id must have at most {DELIVERY_ID_CHARACTERS_MAX} printable characters"
            raise _Rejected(verdicts.REJECTED_DELIVERY, _error(400, "bad_delivery", message), message)
        try:
            content = unpack_body(body, headers, bytes_max=addressed.body_bytes)
            value = parse_body(content)
            credentials, rest = take_credentials(block, value)
            text = content.decode() if not credentials else json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
            mapped = run_input(block, rest, text)
            if block.delivery == CHANNEL:
                value_text(value, self._channel_value_bytes)
        except (BodyInvalid, MappingInvalid, Refused) as error:
            raise _rejected_body(error) from error
        definition = addressed.proven(proof)
        return _Taken(definition=definition, delivery_id=identity, input=mapped, text=text, credentials=credentials)

    async def _submission(self, taken: _Taken, address: str) -> SubmitDelivery:
        """Return the record of a request. Raises _Rejected."""
        definition = taken.definition
        sealed = b""
        if taken.credentials:
            if self._ingress.secret is None:
                message = "credentials of a body cannot be kept: the operator has set no LOOMLOG_SECRET_KEY"
                raise _Rejected(verdicts.REJECTED_DELIVERY, _error(503, "credentials_off", message), message)
            raw = json.dumps(dict(taken.credentials)).encode()
            sealed = self._ingress.secret.encrypt(raw, SEAL_PURPOSE, definition.tenant)
        submitted = SubmitDelivery(
            envelope=self._envelope(definition.tenant, taken.input.user_id),
            name=definition.name,
            address=address,
            delivery_id=taken.delivery_id,
            received_at_ms=self._clock_ms(),
            body=taken.text,
            sealed_credentials=sealed,
            positions=self._services.positions(self._ingress, definition, address, now_ms=self._clock_ms()),
        )
        try:
            return await self._with_content(submitted)
        except Unavailable as error:
            reply = _error(503, "runtime_unavailable", str(error), retry_after_s=RETRY_SOON_S)
            raise _Rejected(verdicts.REJECTED_DELIVERY, reply, str(error)) from error

    def _envelope(self, tenant: str, subject: str) -> CommandEnvelope:
        return CommandEnvelope(
            command_id=hashed_token("webhook", self._ingress.new_token()),
            tenant=tenant,
            subject=subject,
            issued_at_ms=self._clock_ms(),
        )

    async def _with_content(self, submitted: SubmitDelivery) -> SubmitDelivery:
        """Return a record with its body encrypted, and as a blob when it is long. Raises Unavailable."""
        envelope = submitted.envelope
        try:
            text = await self._context.encrypt(submitted.body, envelope.tenant, envelope.subject, untrusted=True)
        except NewerInstallationKey as error:
            raise Unavailable(str(error), code="keys_unavailable") from error
        except ConnectorError as error:
            raise Unavailable(describe_unreachable("the log", error), code="log_unavailable") from error
        if len(raw := text.encode()) <= INLINE_BYTES:
            return replace(submitted, body=text)
        try:
            return replace(submitted, body="", body_blob=await self._context.blobs.put(raw))
        except ConnectorError as error:
            raise Unavailable(describe_unreachable("the blob store", error), code="blobs_unavailable") from error

    # --- the decision ------------------------------------------------------------------------------------------------

    def _waiting(self, definition: WebhookDefinition, command_id: str, user_id: str = "") -> "_Waiting":
        """Wait for what owners answer to a delivery that is about to be appended."""
        block = definition.webhook
        if block.delivery == SPAWN:
            run_id = run_id_of(definition.aggregate, command_id)
            expected = self._ingress.runs.expect(run_id)
            return _Waiting([(self._replicas, definition.aggregate, command_id)], run_id, expected)
        answers = [(self._replicas, definition.aggregate, command_id + step) for step in ("", REFUSED_STEP)]
        queue = queue_of_message(self._declarations, definition.tenant, block.channel, user_id)
        answers += [(self._channel_replicas, queue, command_id + PUBLISH_STEP)] if queue else []
        return _Waiting(answers)

    async def _decided(self, taken: _Taken, waiting: "_Waiting") -> WebhookReply:
        """Return the answer, as far as it is known in time."""
        definition = taken.definition
        block = definition.webhook
        kept = WebhookAnswer(
            webhook_name=definition.name,
            delivery_id=taken.delivery_id,
            channel=block.channel if block.delivery == CHANNEL else UNSET,
        )
        deadline = asyncio.get_running_loop().time() + self._ingress.wait_s
        event = await waiting.decision(deadline)
        match event:
            case None:  # no run yet: a repeated delivery gets the run of the first one
                return WebhookReply(status=202, body=replace(kept, pending=True))
            case DeliveryRepeated(run_id=run_id):
                channel = UNSET if run_id else event.channel or block.channel
                first = replace(kept, run_id=run_id or UNSET, channel=channel, deduped="true")
                return WebhookReply(status=200, body=first)
            case DeliveryRejected():
                status, code = REJECTIONS.get(event.verdict, (400, "bad_delivery"))
                return _error(status, code, event.detail, retry_after_s=event.retry_after_s)
            case CommandRefused():
                status, code = _lasting(event.code, "bad_delivery") or (400, "bad_delivery")
                return _error(status, code, event.message)
        if block.delivery == CHANNEL:
            outcome = await waiting.message(deadline)
            if isinstance(outcome, HookDispatched):
                status, code = _lasting(outcome.code, "bad_mapping") or (503, "channel_unavailable")
                return _error(status, code, outcome.message)
            return WebhookReply(status=202, body=replace(kept, pending=UNSET if outcome is not None else True))
        first_event = await waiting.first_event(deadline)
        if isinstance(first_event, RunRefused):
            return await self._refused(definition, event, first_event)
        started = replace(kept, run_id=waiting.run_id, pending=UNSET if first_event is not None else True)
        return WebhookReply(status=202, body=started)

    async def _refused(self, definition: WebhookDefinition, event: Any, refused: RunRefused) -> WebhookReply:
        """Tell the webhook that its run was refused, so that the sender may try again; return the answer."""
        assert isinstance(event, EventReceived)
        note = NoteRunEnded(
            envelope=CommandEnvelope(
                command_id=f"{event.run_id}:ended", tenant=definition.tenant, issued_at_ms=self._clock_ms()
            ),
            name=definition.name,
            run_id=event.run_id,
            status=REFUSED,
            code=refused.code,
            message=refused.message,
        )
        await self._rejections.tell(note)
        known = RUN_REFUSALS.get(refused.code) or _lasting(refused.code, "invalid_run")
        status, code = known or (503, "runtime_unavailable")
        message = await self._context.decrypt(refused.message, definition.tenant)
        return _error(
            status, code, f"{refused.code}: {message}", retry_after_s=RETRY_SOON_S if status in (429, 503) else 0
        )

    async def _ended(self, definition: WebhookDefinition, answer: WebhookAnswer, timeout_s: float) -> WebhookReply:
        """Return the answer with the end of the run, or 504."""
        run_id = str(answer.run_id)
        ended = await self._ingress.runs.end(definition.tenant, run_id, timeout_s)
        if ended is None:
            unknown = WebhookRefusal(
                error="sync_timeout",
                code="sync_timeout",
                webhook_name=answer.webhook_name,
                delivery_id=answer.delivery_id,
                run_id=run_id,
            )
            return WebhookReply(status=504, body=unknown)
        shown = replace(
            answer,
            pending=UNSET,
            agent_id=ended.agent_id,
            status=ended.status,
            final_text=ended.final_text,
            result=UNSET if ended.result is None else ended.result,
        )
        return WebhookReply(status=200, body=shown)

    # --- operators ---------------------------------------------------------------------------------------------------

    def dry_run(self, addressed: AddressedWebhook, headers: Mapping[str, str], body: bytes) -> WebhookReport:
        """Return what would become of a request. Rate limits and repeated ids are not looked at."""
        block = addressed.webhook
        try:
            taken = self._check(addressed, headers, body)
        except _Rejected as rejected:
            detail = str(rejected) or rejected.code
            return WebhookReport(would_accept=False, verdict=rejected.verdict, detail=detail)
        preview = WebhookRunPreview(
            agent=block.agent,
            user_id=taken.input.user_id,
            goal=taken.input.goal,
            run_metadata={name: json.loads(text) for name, text in taken.input.run_metadata.items()},
            credential_keys=list(credential_names(block, taken.credentials)),
        )
        return WebhookReport(
            would_accept=True,
            verdict=verdicts.ACCEPTED,
            delivery_id=taken.delivery_id,
            run_input_preview=preview if block.delivery == SPAWN else None,
            channel=block.channel if block.delivery == CHANNEL else UNSET,
        )

    # --- CloudEvents -------------------------------------------------------------------------------------------------

    async def publish(self, caller: Caller, event: CloudEvent) -> "PublishedEvent":
        """Append an event of the caller's tenant; it is acknowledged when this returns. Raises Refused."""
        needed = RUNS_CREATE if event.webhook else CHANNEL_PUBLISH
        if not has_scope(caller, needed):
            raise Refused("insufficient_scope", f"this needs the scope {needed}", details={"scope": needed})
        addressed = await self.find(caller.tenant, event.webhook) if event.webhook else None
        definition = None if addressed is None else addressed.owned_by(caller.tenant)
        if event.webhook and definition is None:
            raise Refused("unknown_webhook", f"there is no webhook {event.webhook[:80]!r}")
        if event.channel:
            declared = self._declarations.find(caller.tenant, event.channel)
            if declared is None:
                raise Refused("channel_not_declared", f"there is no channel {event.channel[:80]!r}")
            for origin in (request_origin(is_admin=caller.is_admin), Origin.EVENT):
                require_publisher(declared, origin)
            value_text(parse_body(event.text), self._channel_value_bytes)
        submitted = await self._with_content(
            SubmitDelivery(
                envelope=self._envelope(caller.tenant, caller.subject),
                name=event.webhook,
                address=caller.tenant,
                channel=event.channel,
                scope_id=event.scope_id,
                delivery_id=event.delivery_id,
                received_at_ms=self._clock_ms(),
                body=event.text,
                positions=()
                if definition is None
                else self._services.positions(self._ingress, definition, caller.tenant, now_ms=self._clock_ms()),
                by=caller.subject,
            )
        )
        answer = CloudEventAnswer(
            id=event.id,
            source=event.source,
            delivery_id=event.delivery_id,
            webhook=event.webhook or UNSET,
            channel=UNSET if event.webhook else event.channel,
        )
        waiting = None
        if definition is not None:
            expected = [(self._replicas, definition.aggregate, submitted.envelope.command_id)]
            waiting = _Waiting(expected)
        try:
            await self._ingress.append(caller.tenant, event.webhook or event.channel, submitted)
        except Refused:
            if waiting is not None:
                waiting.close()
            raise
        deadline = asyncio.get_running_loop().time() + self._ingress.wait_s
        if definition is None or waiting is None:
            return PublishedEvent(answer, None, deadline)
        return PublishedEvent(answer, waiting, deadline, leave=partial(self._services.own.leave, definition.aggregate))


class PublishedEvent:
    """A CloudEvent that is in the log. Ask for its outcome, which ends the waiting for its webhook's decision."""

    def __init__(
        self,
        answer: CloudEventAnswer,
        waiting: "_Waiting | None",
        deadline: float,
        *,
        leave: Callable[["_Waiting"], None] = lambda waiting: None,
    ) -> None:
        """`waiting` None: it goes to a channel, where nothing is decided about it. `leave`: see OwnDeliveries."""
        self._leave = leave
        self._answer = answer
        self._waiting = waiting
        self._deadline = deadline

    async def outcome(self) -> CloudEventAnswer:
        """Return the answer, with `pending` when the webhook has not decided in time. Raises Refused when it has
        refused the delivery.
        """
        if self._waiting is None:
            return self._answer
        try:
            event = await self._waiting.decision(self._deadline)
        finally:
            self._leave(self._waiting)
        match event:
            case None:
                return replace(self._answer, pending=True)
            case DeliveryRepeated():
                return replace(self._answer, deduped=True)
            case DeliveryRejected(verdict=verdicts.REJECTED_RATE):
                raise Refused("rate_limited", event.detail, retry_after_s=event.retry_after_s)
            case DeliveryRejected() | CommandRefused():
                detail = event.detail if isinstance(event, DeliveryRejected) else event.message
                raise Refused("bad_request", f"the event: {detail}")
        return self._answer


class _Waiting(AwaitedAnswers):
    """What a request waits for: answers of owners, and the beginning of a run. Close it after use."""

    def __init__(
        self, expected: Sequence[tuple[Replicas, str, str]], run_id: str = "", run: ExpectedRun | None = None
    ) -> None:
        super().__init__(expected)
        self.run_id = run_id
        self._run = run

    async def message(self, deadline: float) -> MessagePublished | HookDispatched | None:
        """Return the event that published the message, or with which the webhook was told that it is refused; None when
        there is neither in time.
        """
        waiting, clock = set(self.answers[1:]), asyncio.get_running_loop().time
        while waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=max(0.0, deadline - clock()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for answer in done:
                event = None if answer.exception() else answer.result().events[-1]
                if isinstance(event, MessagePublished | HookDispatched):
                    return event
        return None

    async def first_event(self, deadline: float) -> RunStarted | RunRefused | None:
        """Return the first event of the run; None when there is none in time."""
        return None if self._run is None else await self._run.first_event(deadline)

    def close(self) -> None:
        super().close()
        if self._run is not None:
            self._run.close()


def _lasting(refusal: str, code: str) -> tuple[int, str] | None:
    """Return the status and the code for a refusal that no repetition changes; None for one that may pass."""
    if refusal == TOO_LARGE:
        return 413, TOO_LARGE
    return (400, code) if is_invalid_code(refusal) else None


def _rejected_body(error: BodyInvalid | MappingInvalid | Refused) -> _Rejected:
    """Return the refusal of a body that never fits: no repetition of the request could succeed."""
    if isinstance(error, BodyTooLong) or (isinstance(error, Refused) and error.code == TOO_LARGE):
        message = f"the body: {error}"
        return _Rejected(verdicts.REJECTED_BODY, _error(413, TOO_LARGE, message), message)
    message = str(error) if isinstance(error, MappingInvalid) else f"the body: {error}"
    verdict = verdicts.REJECTED_BODY if isinstance(error, Refused) else verdicts.REJECTED_MAPPING
    return _Rejected(verdict, _error(400, "bad_mapping", message), message)


def _error(status: int, code: str, detail: str = "", *, retry_after_s: int = 0, secret_env: str = "") -> WebhookReply:
    refusal = WebhookRefusal(error=code, code=code, detail=detail or UNSET, secret_env=secret_env or UNSET)
    return WebhookReply(status=status, body=refusal, retry_after_s=retry_after_s)
