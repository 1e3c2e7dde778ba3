"""Server-sent events that commands follow until Ctrl-C, over lost connections.

Before: services/cli/channels/reads.py, services/cli/runs/watch.py. After: connectors/http/sse.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx
import msgspec

from loomlog.connectors.http.sse import EventParser, FrameTooLarge
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.http.api import ApiClient, query_params

EVENT_BYTES_MAX = 2 * 1024 * 1024
"""A message of 256 KiB with every character escaped; or the error of a run, and the context of its parent."""
RETRY_S = 1.0


async def follow_events(
    api: ApiClient, path: str, params: Mapping[str, str], *, last_id: str = ""
) -> AsyncGenerator[tuple[str, Any]]:
    """Yield name and JSON of the events behind an id, after a lost connection those behind the last one that had an id.

    Raises CliError when the first connection fails, one is refused, or an event is too long.
    """
    query = str(httpx.QueryParams(query_params(params)))
    was_connected = False
    while True:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            async with api.stream("GET", f"{path}?{query}" if query else path, headers=headers) as response:
                was_connected = True
                parser = EventParser(EVENT_BYTES_MAX, last_id=last_id)
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        last_id = event.last_id
                        yield event.name, msgspec.json.decode(event.data)
        except httpx.HTTPError as error:
            if not was_connected:
                raise api.unreachable_error(error) from error
        except FrameTooLarge as error:
            raise CliError(f"An event of {path} is too long: {error}.") from error
        await asyncio.sleep(RETRY_S)
