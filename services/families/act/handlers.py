"""The handler of the list of acts.

Before: services.py. After: projections/acts.py.
"""

from typing import Any

import orjson
from msgspec import UNSET, UnsetType

from loomlog.connectors.errors import ConnectorError
from loomlog.projections.acts import ActFilter, ActReads, ActRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.act import api
from loomlog.services.families.operation import Decrypt, read_rows


class ActHandlers:
    """Raises Refused and Unavailable."""

    def __init__(self, reads: ActReads | None, *, decrypt: Decrypt) -> None:
        """`reads` None: this process has none."""
        self._reads = reads
        self._decrypt = decrypt

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.LIST: self.list}

    async def list(self, call: Call[api.ActList]) -> Answer[api.ActPage]:
        """Return a page of the acts of a tenant, for an administrator who names none of all."""
        asked = call.input
        if self._reads is None:
            raise Unavailable("this process does not read acts: ask the api")
        chosen = ActFilter(
            tenant=call.caller.tenant or EVERY_TENANT,
            who=asked.who,
            what=asked.what,
            since_ms=parse_time_ms("since", asked.since) if asked.since else None,
            until_ms=parse_time_ms("until", asked.until) if asked.until else None,
        )
        try:
            page = await read_rows(self._reads.list(chosen, limit=asked.limit, after=asked.cursor))
        except InvalidPageToken as error:
            raise Refused("bad_request", f"cursor: {error}") from error
        try:
            acts = [await self._shown(row) for row in page.rows]
        except ConnectorError as error:
            raise Unavailable(f"the keys of the details cannot be read: {error}", code="log_unavailable") from error
        return Answer(value=api.ActPage(acts=acts, next=page.next))

    async def _shown(self, row: ActRow) -> api.ActShown:
        return api.ActShown(
            act_id=row.act_id,
            at=format_rfc3339(row.at_ms),
            tenant_id=row.tenant,
            who=row.who,
            token=row.token,
            token_id=row.token_id,
            transport=row.transport,
            request_id=row.request_id,
            what=row.operation,
            target=row.target,
            outcome=row.outcome,
            code=row.code or UNSET,
            count=row.times if row.times > 1 else UNSET,
            ended_at=format_rfc3339(row.ended_at_ms) if row.ended_at_ms else UNSET,
            request=await self._detail(row.request, row.tenant),
            before=await self._detail(row.before, row.tenant),
            after=await self._detail(row.after, row.tenant),
        )

    async def _detail(self, text: str, tenant: str) -> Any | UnsetType:
        """Return a detail as JSON; a text where it cannot be read any more, because its key is erased."""
        if not text:
            return UNSET
        plain: str = await self._decrypt(text, tenant)
        try:
            return orjson.loads(plain)
        except orjson.JSONDecodeError:
            return plain
