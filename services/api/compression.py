"""Compression of large JSON answers, for clients that admit it.

Lists of runs and records are full of repetitions: 100 runs are 147 KB, and 7 KB compressed. Small answers gain nothing,
and streams are sent as they come. An answer is compressed beside the event loop when that takes longer than a few
milliseconds. The level is the lowest: the next ones save little more and take longer.

Not chosen: Starlette's GZipMiddleware (it compresses in the event loop, and wraps every answer).
Before: app.py, when an endpoint has returned. After: the ASGI response.
"""

import asyncio
import zlib

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.responses import JsonResponse
from loomlog.services.api.ui_page import accepts_gzip

COMPRESSED_MIN_BYTES = 8 * 1024
"""Smaller answers fit a few packets either way."""
THREAD_MIN_BYTES = 256 * 1024
"""Larger ones take more than 2 ms, in which an event loop should do something else."""
LEVEL = 1
GZIP_WINDOW_BITS = 31
"""zlib's largest window, with a gzip header."""


async def compress(request: Request, response: Response) -> None:
    """Compress the body of a large JSON response in place, if the client admits that."""
    if not isinstance(response, JsonResponse) or len(response.body) < COMPRESSED_MIN_BYTES:
        return
    headers = response.headers
    headers.add_vary_header("accept-encoding")
    if not accepts_gzip(request.headers.get("accept-encoding", "")):
        return
    body = bytes(response.body)
    response.body = _gzip(body) if len(body) < THREAD_MIN_BYTES else await asyncio.to_thread(_gzip, body)
    headers["content-encoding"] = "gzip"
    headers["content-length"] = str(len(response.body))


def _gzip(body: bytes) -> bytes:
    compressor = zlib.compressobj(LEVEL, wbits=GZIP_WINDOW_BITS)
    return compressor.compress(body) + compressor.flush()
