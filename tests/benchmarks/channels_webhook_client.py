"""A sender of webhooks. A process of its own.

    python -m tests.benchmarks.channels_webhook_client HOST:PORT NAME SECRET CONNECTIONS WARM_UP_S SECONDS [bad]

Each request has 2 KB of JSON, an id of its own and an HMAC over its body; with `bad`, one of a wrong secret. One JSON
line: answers a second by status, and those that told no outcome yet. SystemExit for an answer that is neither.
"""

import hashlib
import hmac
import json
import secrets
import sys
from collections import Counter

import uvloop

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.sse_client import Client

BODY_BYTES = 2_048
GOOD, BAD = (200, 202), 401


async def main(address: str, name: str, secret: str, connections: int, warm_up_s: float, seconds: float) -> None:
    client, statuses = Client(address), Counter[str]()
    is_bad = sys.argv[-1] == "bad"

    async def send() -> None:
        body = json.dumps({"order": secrets.token_hex(8), "note": secrets.token_hex(BODY_BYTES // 2 - 30)}).encode()
        key = b"wrong" if is_bad else secret.encode()
        signature = hmac.new(key, body, hashlib.sha256).hexdigest()
        head = (
            f"POST /v1/_webhooks/{name} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
            f"X-Hub-Signature-256: sha256={signature}\r\nX-Delivery-Id: {secrets.token_hex(16)}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        status, answer = await client.send(head.encode() + body)
        statuses["pending" if b'"pending":true' in answer.replace(b" ", b"") else str(status)] += 1
        if status != BAD if is_bad else status not in GOOD:
            raise SystemExit(f"{status}: {answer[:200]!r}")

    measured = await measure(send, in_flight=connections, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    client.close()
    print(json.dumps({**measured.as_json(), "statuses": statuses}), flush=True)


if __name__ == "__main__":
    where, hook, key_text, count, warm, long = sys.argv[1:7]
    uvloop.run(main(where, hook, key_text, int(count), float(warm), float(long)))
