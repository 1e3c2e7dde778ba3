"""Starting runs: a new one, a further one of a session, and the same one again under its Idempotency-Key.

    checked, authorised   the request and its sender are valid
    named                 the ids, and with them the partition whose owner decides (run_ids.py)
    stored                its credentials, if any, are sealed outside the log (storage/run_credentials.py)
    published             StartRun is in the log: from here on the run will start, whatever happens to this process
    decided               the hub received RunStarted or RunRefused

The owner of the partition decides everything that depends on live runs: busy sessions, handles in use, bounds. Only
what it cannot see from its partition is looked up here first. An idempotent repetition produces no second event, so its
run is looked for in the read models as well, before and while waiting.

A timeout is not a failure: the command is durable and the run starts once there is an owner. The response reports that,
with all ids (`run_pending`).

Before: a transport. After: services/application/command_publisher.py, services/application/streaming/event_hub.py,
services/application/streaming/run_stream.py.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from msgspec import Struct

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.output_schema import schema_text
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.storage.run_credentials import RunCredentials
from loomlog.projections.runs import RunRow
from loomlog.schemas.generated.run_commands import ForkRun, StartRun
from loomlog.schemas.generated.run_events import RunRefused, RunStarted
from loomlog.schemas.generated.values import CommandEnvelope, RunOptions, RunPosition
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import Record, replace
from loomlog.services.application import limits
from loomlog.services.application.authentication import require_access
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.errors import RETRY_LATER_S, RETRY_SOON_S, bad_request, owner_refusal, reaching
from loomlog.services.application.payloads import offload_payloads
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.runs.requests import (
    RunRequest,
    check_request,
    check_signatures,
    hook_channels,
    hook_scopes,
    request_digest,
    to_json_texts,
)
from loomlog.services.application.runs.run_ids import RunNames, continuation_names, handle_token, new_run_names
from loomlog.services.application.runs.run_target import RunTarget
from loomlog.services.application.streaming.items import EventItem, Item, StreamChunk
from loomlog.services.application.streaming.run_stream import RunStream, StreamSources, new_stream, resumed_stream
from loomlog.services.application.streaming.subscription import Subscription
from loomlog.services.core.access.decide import Caller, ResourceOwner, RunIdentity, can_see, resolve_identity
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.encryption.content_fields import encrypt_content
from loomlog.services.stream.encryption.subject_keys import ContentEncryptor

HANDLE_IN_USE = "agent_id_in_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """An accepted run. `stream` is open: read it to its end, or close it."""

    run_id: str
    session_id: str
    agent_id: str
    position: str
    """Position of its first event."""
    is_repeated: bool
    """The run existed before: the request was repeated under its Idempotency-Key."""
    stream: RunStream


async def _admit_all(caller: Caller, who: RunIdentity, agent: str) -> None:
    """`admit` without quotas."""


class StartAttempt(Struct, frozen=True, kw_only=True):
    """A run about to be started. `make_command` builds another command than StartRun, for a fork."""

    caller: Caller
    request: RunRequest
    requester: RunIdentity
    names: RunNames
    digest: str
    continues: RunPosition | None = None
    make_command: Callable[[RunRequest], Record] | None = None
    encryptor: ContentEncryptor | None = None
    """Encrypts the content of the request; None when content is not encrypted."""


class RunStarts:
    """The use cases that start runs. `clock_ms` and `fresh_token` supply time and randomness."""

    def __init__(
        self,
        sources: StreamSources,
        reads: RunQueries,
        publisher: CommandPublisher,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        decision_wait_s: float = limits.DECISION_WAIT_S,
        admit: Callable[[Caller, RunIdentity, str], Awaitable[None]] = _admit_all,
        credentials: RunCredentials | None = None,
        read_positions: Callable[[str, str, str], tuple[str, ...]] = lambda tenant, agent, user_id: (),
        require_publisher: Callable[[Caller, str], None] = lambda caller, channel: None,
        secrets: SecretRegistry = NO_SECRETS,
    ) -> None:
        """`credentials` None: requests with credentials are refused.

        `read_positions`: returns, for a tenant, an agent and a user, what the owner of a run must have read of entities
        before it decides about the start, because this process has: positions. `require_publisher`: refuses a channel
        to which a request of the caller may not publish.
        """
        self._read_positions = read_positions
        self._secrets = secrets
        self._credentials = credentials
        self._sources = sources
        self._reads = reads
        self._publisher = publisher
        self._blobs: Blobs = sources.blobs
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._decision_wait_s = decision_wait_s
        self.pending_starts = 0
        """Starts of this process that are in the log and wait for their owner, mostly for a free slot."""
        self._admit = admit
        self._require_publisher = require_publisher

    async def start(self, caller: Caller, request: RunRequest) -> StartedRun:
        """Start a new run; with a session_id a further run of that session, with the agent of the request."""
        request = self._check(caller, request)
        if not request.agent:
            raise bad_request("agent is required: the name of the agent to run")
        if request.session_id:
            return await self._continue(caller, request)
        who = resolve_identity(caller, user_id=request.user_id)
        fresh = self._fresh_token()
        if not (request.idempotency_key or request.agent_id):  # their hash decides the partition
            fresh = self._publisher.choose_partition(fresh, self._clock_ms())
        names = new_run_names(
            fresh_token=fresh,
            tenant=who.tenant,
            subject=who.subject,
            agent_id=request.agent_id,
            idempotency_key=request.idempotency_key,
        )
        return await self.launch(
            StartAttempt(caller=caller, request=request, requester=who, names=names, digest=_key_digest(request))
        )

    async def continue_session(self, caller: Caller, session_id: str, request: RunRequest) -> StartedRun:
        """Start a further run of a session, with the session's agent unless the request names one."""
        return await self._continue(caller, self._check(caller, replace(request, session_id=session_id)))

    def _check(self, caller: Caller, request: RunRequest) -> RunRequest:
        """Return the request as it is taken: well formed, with hooks that the caller could carry out itself."""
        request = check_request(request)
        # Depends on the content: no declaration says what the hooks of a request do.
        for scope in hook_scopes(request):
            require_access(caller, own_data(scope))
        for channel in hook_channels(request):
            self._require_publisher(caller, channel)
        return request

    async def _continue(self, caller: Caller, request: RunRequest) -> StartedRun:
        head = await self._reads.session_to_continue(caller, request.session_id)
        who = resolve_identity(caller, user_id=request.user_id, session=head.owner)
        names = continuation_names(
            fresh_token=self._fresh_token(),
            session_id=request.session_id,
            tenant=who.tenant,
            subject=who.subject,
            agent_id=request.agent_id,
            idempotency_key=request.idempotency_key,
        )
        digest = _key_digest(request)
        request = replace(request, agent=request.agent or head.agent, user_tier=request.user_tier or head.user_tier)
        return await self.launch(
            StartAttempt(
                caller=caller,
                request=request,
                requester=who,
                names=names,
                digest=digest,
                continues=_position_of(head.newest),
            )
        )

    # --- launching ---------------------------------------------------------------------------------------------------

    async def launch(self, attempt: StartAttempt) -> StartedRun:
        """Publish the command and wait for the owner's decision. Raises Refused."""
        check_signatures(self._secrets, attempt.request.on_complete, attempt.requester.tenant)
        content, who = self._sources.content, attempt.requester
        if content.keys is not None:
            await self._check_not_erased(attempt)
            attempt = replace(
                attempt,
                encryptor=await content.encryptor_for(who.tenant, who.user_id),
                digest=await content.keyed_digest(who.tenant, who.user_id, attempt.digest),
            )
        request, names = attempt.request, attempt.names
        if request.idempotency_key and (earlier := await self._earlier_run(attempt, wait=True)) is not None:
            return earlier
        await self._admit(attempt.caller, attempt.requester, request.agent)
        if request.agent_id:
            await self._check_handle(attempt)
        is_known = bool(request.idempotency_key and self._sources.hub.recent(names.run_id))
        subscription = self._sources.hub.subscribe(names.run_id, previews=True)
        try:
            if not is_known:
                await self._store_credentials(attempt)
                whole = await self._prepare_request(request, attempt.encryptor)
                command = (
                    self._build_command(whole, attempt) if attempt.make_command is None else attempt.make_command(whole)
                )
                if isinstance(command, StartRun | ForkRun):
                    digest = attempt.digest if attempt.encryptor is not None else command.request_sha256
                    command = replace(
                        command,
                        request_sha256=digest,
                        after=self._read_positions(command.envelope.tenant, request.agent, command.user_id),
                    )
                    restricted = attempt.requester.operator_key_restricted
                    if isinstance(command, ForkRun):
                        overrides, seal = command.overrides, attempt.encryptor
                        if overrides is not None and seal is not None:
                            overrides = encrypt_content(overrides, seal)
                        command = replace(command, operator_key_restricted=restricted, overrides=overrides)
                    else:
                        options = replace(command.options, operator_key_restricted=restricted)
                        command = replace(command, options=options)
                await self._publisher.publish(names.key, names.run_id, command, traceparent=request.traceparent)
            self.pending_starts += 1
            try:
                return await self._wait_for_decision(attempt, subscription, is_repeated=is_known)
            finally:
                self.pending_starts -= 1
        except BaseException:
            subscription.close()
            raise

    async def _check_not_erased(self, attempt: StartAttempt) -> None:
        """Raise Refused(content_erased) when the run that the request started is erased.

        Called before the subject gets a new key, under which older digests cannot be compared.
        """
        keys, who, run_id = self._sources.content.keys, attempt.requester, attempt.names.run_id
        if keys is None or not attempt.digest or not keys.table.erasures_of(who.tenant, who.user_id):
            return
        try:
            await self._sources.barrier.wait_for_own_writes(self._sources.partition_of(run_id))
            row = await self._sources.projection.run(who.tenant, run_id)
            erasure = None if row is None else await self._reads.erasure_of(row)
        except Refused as declined:
            if declined.code != "projection_unavailable":
                raise
            return  # treated like no known earlier run
        if erasure is not None:
            raise Refused(
                "content_erased",
                f"this Idempotency-Key started {run_id}, and its content is erased (erasure "
                f"{erasure.record.erasure_id}); use a new key to ask again",
                details={"run_id": run_id},
            )

    async def _store_credentials(self, attempt: StartAttempt) -> None:
        """Store the credentials before the command is in the log: from then on an owner may need them.

        Raises Refused.
        """
        credentials = attempt.request.credentials
        if not credentials:
            return
        if self._credentials is None:
            raise Refused(
                "credentials_off",
                "user_bearer and user_credentials cannot be kept here: the operator has set no LOOMLOG_SECRET_KEY to "
                "seal them with",
            )
        with reaching("credentials"):
            await self._credentials.put(attempt.requester.tenant, attempt.names.run_id, credentials)

    async def _delete_credentials(self, attempt: StartAttempt) -> None:
        """Delete the credentials of a refused run; those left when the store is unavailable expire."""
        if attempt.request.credentials and self._credentials is not None:
            with contextlib.suppress(ConnectorError):
                await self._credentials.delete([attempt.names.run_id])

    async def _prepare_request(self, request: RunRequest, encryptor: ContentEncryptor | None) -> RunRequest:
        """Return the request as the log stores it: encrypted, large payloads in the blob store.
        Raises Refused.
        """
        segments = request.segments
        if encryptor is not None:
            segments = tuple(encrypt_content(segment, encryptor) for segment in segments)
        return replace(request, segments=await offload_payloads(segments, self._blobs))

    def _build_command(self, request: RunRequest, attempt: StartAttempt) -> StartRun:
        options = RunOptions(
            user_tier=request.user_tier,
            allowed_hosts=request.allowed_hosts,
            web_search_filter=request.web_search_filter,
            interactive=request.interactive,
            run_timeout_s=request.run_timeout_s,
            metadata=to_json_texts(request.metadata),
            parent_context=request.parent_context,
            payload_metadata=to_json_texts(request.payload_metadata),
            credentials=tuple(sorted(request.credentials)),
            on_complete=tuple(orjson.dumps(hook).decode() for hook in request.on_complete),
        )
        return StartRun(
            envelope=CommandEnvelope(
                # Each run id has one start, so the run id is the command's id too.
                command_id=attempt.names.run_id,
                tenant=attempt.requester.tenant,
                subject=attempt.requester.subject,
                issued_at_ms=self._clock_ms(),
            ),
            agent=request.agent,
            segments=request.segments,
            run_id=attempt.names.run_id,
            # Only set to continue a session; a new one is derived from the run id.
            session_id=request.session_id,
            agent_id=attempt.names.agent_id,
            user_id=attempt.requester.user_id,
            tools=request.tools,
            options=options if attempt.encryptor is None else encrypt_content(options, attempt.encryptor),
            sampling=request.sampling,
            compaction=request.compaction,
            output_schema=schema_text(request.output_schema) if request.output_schema is not None else "",
            output_retries=request.output_retries,
            idempotency_key=request.idempotency_key,
            request_sha256=attempt.digest,
            continues=attempt.continues,
        )

    async def _wait_for_decision(
        self, attempt: StartAttempt, subscription: Subscription, *, is_repeated: bool
    ) -> StartedRun:
        """Wait for the first event of the run."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._decision_wait_s
        items: list[Item] = []
        look = bool(attempt.request.idempotency_key)
        while (left := deadline - clock()) > 0:
            taken = await subscription.take(min(left, limits.DECISION_POLL_S) if look else left)
            items += taken
            first = next((item for item in items if isinstance(item, EventItem)), None)
            if first is not None:
                subscription.put_back(items)
                if isinstance(first.record, RunRefused):
                    await self._delete_credentials(attempt)
                    if first.record.code == HANDLE_IN_USE:
                        raise _handle_in_use(attempt, await self._handle_holder(attempt))
                return self._started_run(attempt, subscription, first, is_repeated=is_repeated)
            if look and not taken and (earlier := await self._earlier_run(attempt, wait=False)) is not None:
                subscription.close()
                return earlier
            if subscription.close_reason:
                break
        raise self._pending_error(attempt)

    def _started_run(
        self, attempt: StartAttempt, subscription: Subscription, first: EventItem, *, is_repeated: bool
    ) -> StartedRun:
        event = first.record
        if isinstance(event, RunRefused):
            raise owner_refusal(event.code, event.message, event.limit, subject=event.about, cap=event.cap)
        if isinstance(event, RunStarted):
            _check_digest(event.request_sha256, attempt)
            self._sources.hub.learn_run(
                RunTarget(
                    run_id=attempt.names.run_id,
                    tenant=attempt.requester.tenant,
                    user_id=event.user_id,
                    agent_id=event.agent_id,
                )
            )
        head, scope = self._first_chunks(attempt), attempt.requester.tenant
        if first.raw.seq == 1:
            stream = new_stream(self._sources, subscription, scope=scope, head=head)
        else:
            # A repetition of a run whose first events the hub has already dropped.
            subscription.close()
            stream = resumed_stream(self._sources, attempt.names.run_id, scope=scope, head=head)
        return StartedRun(
            run_id=attempt.names.run_id,
            session_id=attempt.names.session_id,
            agent_id=attempt.names.agent_id,
            position=self._sources.barrier.token(first.partition, first.raw.offset),
            is_repeated=is_repeated,
            stream=stream,
        )

    def _first_chunks(self, attempt: StartAttempt) -> list[StreamChunk]:
        names = attempt.names
        ids = {
            "agent_id": names.agent_id,
            "run_id": names.run_id,
            "session_id": names.session_id,
            "parent_agent_id": None,
            "parent_context": attempt.request.parent_context or None,
        }
        return [
            StreamChunk(None, "session", orjson.dumps({"type": "session", "text": names.session_id})),
            StreamChunk(None, "agent", orjson.dumps(ids)),
        ]

    def _pending_error(self, attempt: StartAttempt) -> Refused:
        names = attempt.names
        return Refused(
            "run_pending",
            f"the run {names.run_id} is accepted and in the log, but no runtime has taken it up within "
            f"{self._decision_wait_s:g} s; it starts as soon as one is up. Follow it under its ids, start no other",
            retry_after_s=RETRY_LATER_S,
            details={
                "run_id": names.run_id,
                "session_id": names.session_id,
                "agent_id": names.agent_id,
            },
        )

    # --- what the owner cannot see -----------------------------------------------------------------------------------

    async def _earlier_run(self, attempt: StartAttempt, *, wait: bool) -> StartedRun | None:
        """Return the run that an idempotent request started before, from the read models.

        None also when they are unavailable: the owner recognises a repetition in any case, only the response may then
        be run_pending.
        """
        run_id, tenant = attempt.names.run_id, attempt.requester.tenant
        try:
            if wait:
                await self._sources.barrier.wait_for_own_writes(self._sources.partition_of(partition_key(run_id)))
            row = await self._sources.projection.run(tenant, run_id)
            place = None if row is not None else await self._sources.projection.audit_row(tenant, run_id)
        except Refused as declined:
            if declined.code != "projection_unavailable":
                raise
            return None
        if row is not None:
            _check_digest(row.request_sha256, attempt)
            names = replace(attempt.names, agent_id=row.agent_id, session_id=row.session_id)
            earlier_attempt = replace(attempt, names=names)
            return StartedRun(
                run_id=run_id,
                session_id=row.session_id,
                agent_id=row.agent_id,
                position=self._sources.barrier.token(row.partition, row.first_offset),
                is_repeated=True,
                stream=resumed_stream(self._sources, run_id, scope=tenant, head=self._first_chunks(earlier_attempt)),
            )
        if place is not None and place.status == "refused" and place.ended_at_ms is not None:
            raise owner_refusal(
                place.reason,
                f"{place.reason}: the first request with this Idempotency-Key was refused; use a new key to ask again",
            )
        return None

    async def _check_handle(self, attempt: StartAttempt) -> None:
        """Raise Refused when the handle is live in another partition; within its own the owner decides.

        A fresh run is in the partition of its handle, so only a stray run may have it elsewhere, and those this process
        remembers; or a run that was given none, whose handle is made of its id. The others may be anywhere, and wait
        for the read models in any case.
        """
        tenant, names, hub = attempt.requester.tenant, attempt.names, self._sources.hub
        if names.key == handle_token(tenant, names.agent_id):
            stray = hub.stray_handles.run_with(tenant, names.agent_id)
            if stray and self._is_elsewhere(stray, names):
                raise _handle_in_use(attempt, await self._handle_holder(attempt))
            unnamed = f"r_{names.agent_id.removeprefix('a_')}"
            if unnamed in hub.live_runs and self._is_elsewhere(unnamed, names):
                holder = await self._handle_holder(attempt)
                if holder is not None:  # otherwise it is another tenant's
                    raise _handle_in_use(attempt, holder)
            return
        row = await self._handle_holder(attempt)
        if row is not None and row.partition != self._publisher.partition_of(names.key):
            raise _handle_in_use(attempt, row)

    def _is_elsewhere(self, run_id: str, names: RunNames) -> bool:
        return self._publisher.partition_of(partition_key(run_id)) != self._publisher.partition_of(names.key)

    async def _handle_holder(self, attempt: StartAttempt) -> RunRow | None:
        """Return the live run that has the handle, from the read models; None also when they are unavailable."""
        try:
            await self._sources.barrier.wait_for_own_writes(None)
            row = await self._sources.projection.run_of_handle(attempt.requester.tenant, attempt.names.agent_id)
        except Refused as declined:
            if declined.code != "projection_unavailable":
                raise
            return None
        return row if row is not None and row.status == "running" else None


def _handle_in_use(attempt: StartAttempt, holder: RunRow | None) -> Refused:
    """Return the refusal; it names the run that has the handle only to callers that may see it."""
    holder_name, instead = "a live run", "choose another"
    if holder is not None and can_see(attempt.caller, ResourceOwner(tenant=holder.tenant, user_id=holder.user_id)):
        holder_name, instead = f"the live run {holder.run_id}", "choose another or cancel it"
    message = f"{HANDLE_IN_USE}: {holder_name} has the handle {attempt.names.agent_id}; {instead}"
    return Refused(HANDLE_IN_USE, message, retry_after_s=RETRY_SOON_S)


def _key_digest(request: RunRequest) -> str:
    return request_digest(request) if request.idempotency_key else ""


def _check_digest(stored_digest: str, attempt: StartAttempt) -> None:
    if attempt.digest and stored_digest != attempt.digest:
        raise Refused(
            "idempotency_key_reused",
            f"this Idempotency-Key started {attempt.names.run_id} with another request; use a new key for a "
            "new request",
            details={"run_id": attempt.names.run_id},
        )


def _position_of(row: RunRow | None) -> RunPosition | None:
    """Return the position of the session's last run, a hint for the owner; None while that run is live."""
    if row is None or row.status == "running":
        return None
    return RunPosition(run_id=row.run_id, first_offset=row.first_offset, last_offset=row.last_offset)
