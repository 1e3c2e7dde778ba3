"""A microservice that serves a tool to agents: reads requests, does the work once, writes results.

    python docs/examples/serve_tool.py --bootstrap 127.0.0.1:19092 --done done.json

It serves the tool `add_to_order`. The runtimes' configuration says so:

    remote_tools:
      add_to_order:
        description: Adds an item to an order and says how many items it has.
        input_schema:
          type: object
          properties: {order: {type: string}, item: {type: string}}
          required: [order, item]
        effect: idempotent          # this program keeps what it did by idempotency key
        timeout_seconds: 30

Four things make such a service right:
  1. the key of a result is the key of its request: by it the result finds who waits;
  2. the work and its answer are saved together under the idempotency key, before the answer is sent: a request that
     comes again (a consumer restarted, a runtime died) gets the same answer and nothing is done twice;
  3. a request past its deadline is not executed: its result is ignored, and the model got a timeout;
  4. the position in the topic is committed after the result is in the log.

More of these in the same group share the partitions. Needs aiokafka[lz4] and fastavro, and the two schemas, which lie
in schemas/released (loom.stream.records.RemoteToolRequest and ...Result, with their ids in schemas/ids.json).
"""

import argparse
import asyncio
import io
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import fastavro
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
REQUEST, RESULT = "loom.stream.records.RemoteToolRequest", "loom.stream.records.RemoteToolResult"
TOOL = "add_to_order"
FRAME = struct.Struct(">bI")


class Schemas:
    """Avro in Confluent framing: a zero byte, four bytes of schema id, the body."""

    def __init__(self) -> None:
        self.by_id: dict[int, Any] = {}
        for version in sorted((SCHEMAS / "released" / REQUEST).glob("*.avsc")):
            self.by_id[schema_id(REQUEST, version.stem)] = fastavro.parse_schema(json.loads(version.read_text()))
        newest = max((SCHEMAS / "released" / RESULT).glob("*.avsc"), key=lambda path: int(path.stem))
        self.result_id = schema_id(RESULT, newest.stem)
        self.result = fastavro.parse_schema(json.loads(newest.read_text()))

    def read(self, value: bytes) -> dict[str, Any] | None:
        """The request; None when the record is something else."""
        magic, number = FRAME.unpack_from(value.ljust(FRAME.size, b"\xff"))
        schema = self.by_id.get(number)
        if magic != 0 or schema is None:
            return None
        request = fastavro.schemaless_reader(io.BytesIO(value[FRAME.size :]), schema)
        return request if isinstance(request, dict) else None

    def written(self, result: dict[str, Any]) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self.result, result)
        return FRAME.pack(0, self.result_id) + body.getvalue()


class Orders:
    """The service's own state: the orders, and what was answered to which request. One file, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else {"orders": {}, "answers": {}}
        self.orders: dict[str, list[str]] = saved["orders"]
        self.answers: dict[str, tuple[str, bool]] = saved["answers"]

    def carry_out(self, key: str, arguments: Any) -> tuple[str, bool]:
        """(text, is_error). A repeated key returns the stored result."""
        if key in self.answers:
            text, is_error = self.answers[key]
            return text, is_error
        answer = self._add(arguments)
        self.answers[key] = answer
        self._save()
        return answer

    def _add(self, arguments: Any) -> tuple[str, bool]:
        if not isinstance(arguments, dict) or not all(
            isinstance(arguments.get(name), str) for name in ("order", "item")
        ):
            return "expected order and item, both text", True
        items = self.orders.setdefault(arguments["order"], [])
        items.append(arguments["item"])
        return f"order {arguments['order']} has {len(items)} items now", False

    def _save(self) -> None:
        beside = self.path.with_name(self.path.name + ".new")
        with beside.open("w") as file:
            json.dump({"orders": self.orders, "answers": self.answers}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


async def serve(bootstrap: str, requests: str, results: str, done: Path, group: str) -> None:
    """Until it is stopped."""
    schemas, orders = Schemas(), Orders(done)
    consumer = AIOKafkaConsumer(
        requests,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    await consumer.start()
    print("serving", flush=True)
    try:
        async for record in consumer:
            subjects = [value for name, value in record.headers if name == "ce_subject"]
            if subjects == [TOOL.encode()] and (request := schemas.read(record.value)) is not None:
                await answer(request, record.key, schemas, orders, producer, results)
            await consumer.commit()
    finally:
        await consumer.stop()
        await producer.stop()


async def answer(
    request: dict[str, Any], key: bytes, schemas: Schemas, orders: Orders, producer: AIOKafkaProducer, results: str
) -> None:
    """One request."""
    known = request["idempotency_key"] in orders.answers
    if not known and request["deadline_ms"] < time.time() * 1000:
        print(f"too late: {request['request_id']}", flush=True)
        return
    text, is_error = orders.carry_out(request["idempotency_key"], json.loads(request["input"]))
    result = {name: request[name] for name in ("idempotency_key", "request_id", "run_id", "tenant")}
    value = schemas.written({**result, "text": text, "is_error": is_error})
    await producer.send_and_wait(results, key=key, value=value)
    print(f"{'again' if known else 'done'}: {request['request_id']}: {text}", flush=True)


def schema_id(record: str, version: str) -> int:
    """The id that stands before the body of every such record. With a schema registry ask that instead."""
    versions = json.loads((SCHEMAS / "ids.json").read_text())[record]
    return int(next(entry["id"] for entry in versions if entry["version"] == int(version)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--requests", default="loom.tool.requests")
    parser.add_argument("--results", default="loom.tool.results")
    parser.add_argument("--done", type=Path, default=Path("orders.json"))
    parser.add_argument("--group", default=TOOL)
    options = parser.parse_args()
    asyncio.run(serve(options.bootstrap, options.requests, options.results, options.done, options.group))
    return 0


if __name__ == "__main__":
    sys.exit(main())
