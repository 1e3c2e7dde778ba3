"""Webhooks over HTTP for their senders: receivers without a token, whose proof is in the request, and dry runs.

`/v1/_webhooks/{name}/test` and `/replay` look like the address of a webhook called so, of the tenant {name}. An
administrator with a token means the webhook {name}, as does anyone while there is no webhook of that address;
everything else is a request for it.

Before: api.py declares them. After: receiving.py.
"""

from collections.abc import Awaitable, Callable

from loomlog.services.core.access.decide import Caller, has_scope
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.requests import AsOperation, EndpointAnswer, EndpointHandler, EndpointRequest
from loomlog.services.families.webhook import api
from loomlog.services.families.webhook.receiving import TOO_LARGE, WebhookReceiver, WebhookReply

UNKNOWN = WebhookReply(status=404, body=api.WebhookRefusal(error="unknown_webhook", code="unknown_webhook"))
"""The same for a webhook that is disabled, so that nothing tells the two apart."""
Answer = EndpointAnswer | AsOperation


class WebhookEndpoints:
    """One method for each endpoint. All raise Refused and Unavailable."""

    def __init__(self, receiver: WebhookReceiver) -> None:
        self.receiver = receiver

    def by_endpoint(self) -> dict[Endpoint, EndpointHandler]:
        """Return the handlers by their endpoints."""
        return {
            api.RECEIVE: self.receive,
            api.RECEIVE_OF_TENANT: self.receive_of_tenant,
            api.TEST: self.test,
            api.TEST_OF_TENANT: self.test_of_tenant,
            api.REPLAY_OF_FILES: self.replay,
        }

    async def receive(self, request: EndpointRequest) -> Answer:
        return await self._receive(request, "", request.path["name"])

    async def receive_of_tenant(self, request: EndpointRequest) -> Answer:
        return await self._receive(request, request.path["tenant"], request.path["name"])

    async def test(self, request: EndpointRequest) -> Answer:
        async def test(caller: Caller) -> Answer:
            return await self._test(request, "", request.path["name"])

        return await self._either(request, "test", test)

    async def replay(self, request: EndpointRequest) -> Answer:
        async def replay(caller: Caller) -> Answer:
            return AsOperation(caller=caller)

        return await self._either(request, "replay", replay)

    async def test_of_tenant(self, request: EndpointRequest) -> Answer:
        return await self._test(request, request.path["tenant"], request.path["name"])

    async def _receive(self, request: EndpointRequest, tenant: str, name: str) -> Answer:
        definition = await self.receiver.find(tenant, name)
        if definition is None:
            return _answer(UNKNOWN)
        try:
            body = await request.body(definition.body_bytes)
        except Refused as refused:
            if refused.code == TOO_LARGE:
                self.receiver.too_large(definition, request.headers)
            raise
        reply = await self.receiver.receive(definition, tenant, request.headers, body, sync=request.flag("sync"))
        return _answer(reply)

    async def _either(
        self, request: EndpointRequest, word: str, handle: Callable[[Caller], Awaitable[Answer]]
    ) -> Answer:
        """Handle a request of an administrator, or one for the webhook that is called `word`."""
        name = request.path["name"]
        is_receiver = await self.receiver.find(name, word) is not None
        try:
            caller = await request.identify()
            if not has_scope(caller, ADMIN):
                raise Refused("insufficient_scope", f"this needs the scope {ADMIN}", details={"scope": ADMIN})
        except Refused:
            if is_receiver:
                return await self._receive(request, name, word)
            raise
        if is_receiver and not request.brings_token:  # everybody is an administrator here
            return await self._receive(request, name, word)
        return await handle(caller)

    async def _test(self, request: EndpointRequest, tenant: str, name: str) -> Answer:
        definition = await self.receiver.find(tenant, name)
        if definition is None:
            raise Refused("unknown_webhook", f"there is no webhook {name[:80]!r} that takes requests")
        body = await request.body(definition.body_bytes)
        return EndpointAnswer(record=self.receiver.dry_run(definition, request.headers, body))


def _answer(reply: WebhookReply) -> EndpointAnswer:
    headers = {"retry-after": str(reply.retry_after_s)} if reply.retry_after_s else {}
    return EndpointAnswer(record=reply.body, status=reply.status, headers=headers)
