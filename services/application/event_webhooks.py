"""Events of runs that are sent to others: subscriptions with a time to live, and the requests that deliver them.

    subscribed    the address has echoed a challenge, so a third party cannot be flooded
    delivered     one event after the other, each as a signed request of Standard Webhooks under the event's id; a
                  receiver that is down gets everything once it is up again, while the subscription lives
    taken over    a process holds a subscription for some seconds at a time; after its death another one goes on from
                  the last cursor, and at most one event is sent again, under the same id

A delivery is the caller's own read: it carries the access that the caller had when it last renewed.

Before: services/api/mcp/event_operations.py. After: connectors/storage/event_subscriptions.py,
connectors/http/signed_callbacks.py, streaming/run_feed.py.
"""

import asyncio
import base64
import binascii
import hmac
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import orjson

from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.signed_callbacks import SECRET_PREFIX, CallbackClient, standard_headers
from loomlog.connectors.storage.event_subscriptions import SubscriptionRow, SubscriptionRows
from loomlog.schemas.ids import hashed_token
from loomlog.services.application.errors import bad_request, reaching
from loomlog.services.application.streaming.run_feed import FeedCursor, RunEventFilter, RunFeed, RunOccurrence
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

log = logging.getLogger(__name__)

PURPOSE = "event subscriptions"
LIFETIME_DEFAULT_S, LIFETIME_MIN_S, LIFETIME_MAX_S = 3_600, 60, 86_400
SUBSCRIPTIONS_MAX = 50
"""Subscriptions of one principal: each is a reader of the log."""
DELIVERED_MAX = 200
"""Subscriptions that one process delivers; further ones are taken by others."""
LEASE_S, CLAIM_EVERY_S = 15.0, 3.0
TIMEOUT_S = 10.0
PAUSES_S = (1.0, 2.0, 5.0, 10.0)
"""Pauses before an event is sent again; then always the last one. Shorter than a lease, which each attempt renews."""
SECRET_BYTES = (24, 64)
URL_CHARACTERS_MAX = 2_000
FINAL = frozenset({410, 413})
"""Statuses with which a receiver declines one event."""


class Subscribed(NamedTuple):
    """A subscription as its client sees it."""

    id: str
    expires_at_ms: int
    cursor: str
    error: str
    """Category of the last failed delivery."""


class EndpointRefused(Exception):
    """The address does not take part: `reason` is a category of SEP-3415."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the callback address was not verified: {reason}")
        self.reason = reason


class _Terms(msgspec.Struct, frozen=True):
    """What is sealed of a subscription."""

    caller: dict[str, Any]
    name: str
    arguments: dict[str, str]
    url: str
    secret: str


class EventWebhooks:
    """The use cases, and the deliveries of one process."""

    def __init__(
        self,
        rows: SubscriptionRows,
        key: SecretKey,
        client: CallbackClient,
        feed: RunFeed,
        *,
        private_hosts: tuple[str, ...],
        process: str,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        """`private_hosts` may be http. `process` names this one among those that hold subscriptions."""
        self._rows = rows
        self._key = key
        self._client = client
        self._feed = feed
        self._private_hosts = frozenset(private_hosts)
        self._process = process
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._sleep = sleep
        self._is_due = asyncio.Event()
        self._delivered: set[asyncio.Task[None]] = set()

    async def subscribe(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, str],
        *,
        url: str,
        secret: str,
        cursor: str | None,
        lifetime_s: float,
    ) -> Subscribed:
        """Make a subscription, or renew it. Raises Refused: bad_request, share_exhausted; EndpointRefused."""
        self._check_url(url)
        check_secret(secret)
        place = self._feed.now() if cursor is None else FeedCursor.parse(cursor)
        await self._feed.check(place)
        lifetime_s = min(max(lifetime_s, LIFETIME_MIN_S), LIFETIME_MAX_S)
        identity, owner = subscription_id(caller, url, name, arguments), hashed_token("owner", *_owner(caller))
        terms = _Terms(_caller_fields(caller), name, dict(arguments), url, secret)
        sealed = self._key.encrypt(msgspec.msgpack.encode(terms), PURPOSE, identity)
        with reaching("outside"):
            if await self._rows.find(identity) is None:
                if await self._rows.count(owner) >= SUBSCRIPTIONS_MAX:
                    text = f"{SUBSCRIPTIONS_MAX} subscriptions already: end one first"
                    raise Refused("share_exhausted", text, details={"limit": SUBSCRIPTIONS_MAX})
                await self._verify(identity, url, secret)
            row = await self._rows.put(SubscriptionRow(identity, sealed, place.encode(), ""), owner, lifetime_s)
        self._is_due.set()
        return Subscribed(identity, self._clock_ms() + int(lifetime_s * 1_000), row.cursor, row.error)

    async def unsubscribe(self, caller: Caller, name: str, arguments: Mapping[str, str], *, url: str) -> bool:
        """End a subscription; returns whether there was one. Raises Refused."""
        with reaching("outside"):
            return await self._rows.delete(subscription_id(caller, url, name, arguments))

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError as error:
            raise bad_request(f"delivery.url: {error}") from error
        if len(url) > URL_CHARACTERS_MAX or not url.isprintable() or not host:
            raise bad_request(f"delivery.url: expected an address of at most {URL_CHARACTERS_MAX} characters")
        is_private = parts.scheme == "http" and host in self._private_hosts
        if parts.scheme != "https" and not is_private:
            raise bad_request("delivery.url: expected https")

    async def _verify(self, identity: str, url: str, secret: str) -> None:
        """Ask the address whether it takes part."""
        challenge = self._new_token()
        body = orjson.dumps({"type": "verification", "challenge": challenge})
        try:
            answer = await self._client.post(
                url, body, self._headers(f"msg_verification_{challenge}", body, secret, identity), timeout_s=TIMEOUT_S
            )
        except ConnectorError as error:
            raise EndpointRefused(category_of(error)) from error
        try:
            echoed = orjson.loads(answer or b"")
        except orjson.JSONDecodeError:
            echoed = None
        answered = echoed.get("challenge") if isinstance(echoed, dict) else None
        if not isinstance(answered, str) or not hmac.compare_digest(answered.encode(), challenge.encode()):
            raise EndpointRefused("challenge_failed")

    def _headers(self, message_id: str, body: bytes, secret: str, identity: str) -> dict[str, str]:
        headers = standard_headers(message_id, body, (secret,), self._clock_ms() // 1_000)
        return {**headers, "X-MCP-Subscription-Id": identity}

    # --- deliveries --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._claim(group)
                    self._is_due.clear()
                    try:
                        async with asyncio.timeout(CLAIM_EVERY_S):
                            await self._is_due.wait()
                    except TimeoutError:
                        pass
        finally:
            await self._client.close()

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        room = DELIVERED_MAX - len(self._delivered)
        try:
            rows = await self._rows.claim(self._process, LEASE_S, room) if room > 0 else []
        except ConnectorError as error:
            log.warning("subscriptions cannot be taken up: %s", error)
            return
        for row in rows:
            task = group.create_task(self._deliver(row), name=f"events of {row.id}")
            self._delivered.add(task)
            task.add_done_callback(self._delivered.discard)

    async def _deliver(self, row: SubscriptionRow) -> None:
        """Send the events of a subscription until it is over or another process has it."""
        try:
            terms = self._open(row)
            caller = Caller(**{**terms.caller, "scopes": frozenset(terms.caller["scopes"])})
            criteria = RunEventFilter(type=terms.name, **terms.arguments)
            stream = self._feed.follow(caller, criteria, FeedCursor.parse(row.cursor))
        except (SecretDecryptionError, msgspec.MsgspecError, Refused) as error:
            log.warning("the subscription %s cannot be delivered: %s", row.id, error)
            return
        kept: SubscriptionRow | None = row
        try:
            while kept is not None and (events := await stream.next(LEASE_S / 3)) is not None:
                for event in events:
                    if kept is not None:
                        kept = await self._send(kept, event)
                if kept is not None and not events:
                    kept = await self._advance(kept._replace(cursor=stream.cursor.encode()))
        except Refused as refused:
            log.warning("the subscription %s waits: %s", row.id, refused.message)
        finally:
            stream.close()

    async def _send(self, row: SubscriptionRow, event: RunOccurrence) -> SubscriptionRow | None:
        """Send an event until it is taken; returns the row behind it."""
        body, attempt, kept = orjson.dumps(occurrence_json(event)), 0, row
        while True:
            terms = self._open(kept)
            try:
                await self._client.notify(
                    terms.url, body, self._headers(event.id, body, terms.secret, row.id), timeout_s=TIMEOUT_S
                )
            except ConnectorError as error:
                if error.status not in FINAL:
                    following = await self._advance(kept._replace(error=category_of(error)))
                    if following is None:
                        return None
                    kept = following
                    await self._sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
                    attempt += 1
                    continue
            return await self._advance(kept._replace(cursor=event.cursor, error=""))

    async def _advance(self, row: SubscriptionRow) -> SubscriptionRow | None:
        try:
            return await self._rows.advance(row, self._process, LEASE_S)
        except ConnectorError as error:
            log.warning("the subscription %s is given up: %s", row.id, error)
            return None

    def _open(self, row: SubscriptionRow) -> _Terms:
        return msgspec.msgpack.decode(self._key.decrypt(row.sealed, PURPOSE, row.id), type=_Terms)


def occurrence_json(event: RunOccurrence) -> dict[str, Any]:
    """Return an event of a run in the form of SEP-3415."""
    shown = {"eventId": event.id, "name": event.type, "timestamp": event.at, "data": dict(event.data)}
    return {**shown, "cursor": event.cursor}


def subscription_id(caller: Caller, url: str, name: str, arguments: Mapping[str, str]) -> str:
    """Return the id of a subscription: the same for the same principal, address, type and arguments."""
    canonical = orjson.dumps(dict(arguments), option=orjson.OPT_SORT_KEYS).decode()
    return f"sub_{hashed_token('event subscription', *_owner(caller), url, name, canonical)}"


def check_secret(secret: str) -> None:
    """Raise Refused(bad_request) for a secret that is none of Standard Webhooks."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    low, high = SECRET_BYTES
    if not secret.startswith(SECRET_PREFIX) or not low <= len(key) <= high:
        raise bad_request(f"delivery.secret: expected {SECRET_PREFIX} and base64 of {low} to {high} bytes")


def category_of(error: ConnectorError) -> str:
    """Return what a client may know of a failed request."""
    status = error.status or 0
    if status >= 500 or status == 429:
        return "http_5xx"
    if status >= 300:
        return "http_4xx"
    return "timeout" if error.kind == "timeout" else "connection_refused"


def _owner(caller: Caller) -> tuple[str, str]:
    return caller.tenant, caller.subject


def _caller_fields(caller: Caller) -> dict[str, Any]:
    return {"name": caller.name, "tenant": caller.tenant, "subject": caller.subject, "scopes": sorted(caller.scopes)}
