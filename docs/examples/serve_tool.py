"""A microservice that serves a tool to agents: reads requests, does the work once, writes results.

In the top folder of a clone:

    pip install './connectors/client[kafka]'
    python docs/examples/serve_tool.py --bootstrap 127.0.0.1:19092 --done orders.json

It serves the tool `add_to_order`, which the configuration of loomlog declares:

    remote_tools:
      add_to_order:
        description: Adds an item to an order and returns the number of its items.
        input_schema:
          type: object
          properties: {order: {type: string}, item: {type: string}}
          required: [order, item]
        effect: idempotent          # results are stored by idempotency key
        timeout_seconds: 30

The orders and the results of requests are in one file that is replaced as a whole: work and result are stored together,
so a repeated request adds nothing. A service with a database does both in one transaction. Further processes of the
same group share the partitions.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from loomlog_client import ClientError
from loomlog_client.tools import REQUESTS_TOPIC, RESULTS_TOPIC, StoredResult, ToolFailed, serve_tool

TOOL = "add_to_order"


class Orders:
    """The service's state: orders, and results by idempotency key (protocol loomlog_client.tools.Results)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else {"orders": {}, "answers": {}}
        self.orders: dict[str, list[str]] = saved["orders"]
        self.answers: dict[str, list[Any]] = saved["answers"]

    async def add(self, arguments: dict[str, Any]) -> str:
        """Add an item; it is durable together with the result, at `save`."""
        order, item = arguments.get("order"), arguments.get("item")
        if not isinstance(order, str) or not isinstance(item, str):
            raise ToolFailed('"order" and "item" must be strings')
        items = self.orders.setdefault(order, [])
        items.append(item)
        return f"order {order} has {len(items)} items now"

    def load(self, key: str) -> StoredResult | None:
        stored = self.answers.get(key)
        return None if stored is None else StoredResult(*stored)

    def save(self, key: str, result: StoredResult) -> None:
        self.answers[key] = list(result)
        temporary = self.path.with_name(self.path.name + ".new")
        with temporary.open("w") as file:
            json.dump({"orders": self.orders, "answers": self.answers}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def report(outcome: str, request_id: str, text: str) -> None:
    """Print what happens: started, done, repeated, late."""
    print("serving" if outcome == "started" else f"{outcome}: {request_id}: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--requests", default=REQUESTS_TOPIC)
    parser.add_argument("--results", default=RESULTS_TOPIC)
    parser.add_argument("--done", type=Path, default=Path("orders.json"), help="file of orders and results")
    parser.add_argument("--group", default=TOOL, help="consumer group")
    options = parser.parse_args()
    orders = Orders(options.done)
    serving = serve_tool(
        options.bootstrap,
        TOOL,
        orders.add,
        orders,
        group=options.group,
        requests_topic=options.requests,
        results_topic=options.results,
        on_event=report,
    )
    try:
        asyncio.run(serving)
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
