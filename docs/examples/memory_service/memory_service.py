"""A microservice that tells agents what it knows of customers, and keeps a copy of what is remembered of them.

In the top folder of a clone:

    pip install './connectors/client[kafka]'
    cd docs/examples/memory_service
    python memory_service.py --bootstrap 127.0.0.1:19092 --customers customers.json --copy memory.json

customers.json has a version and the facts of each customer:

    {"ada": {"version": 3, "facts": {"plan": "pro", "seats": 12}}}

Each fact becomes the key `crm/<fact>` in the memory of the user with that id, which agents with
`memory_scopes: [user]` read. The copy has all keys of these users, those that agents and people set too.

Four things make it correct:
  1. the key of a record is `<tenant>/<scope>/<scope id>`: the owner of that partition decides about the scope;
  2. the id of a command names the customer, the version and the fact: sent again after a crash, it changes nothing;
  3. the answer is an event whose cause is that id: EntrySet, or CommandRefused with the reason;
  4. positions and the copy up to them are saved together.

Values in the events are encrypted where loomlog has an encryption key: then read them over HTTP instead.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from loomlog_client import ClientError
from loomlog_client.events import EventReader
from loomlog_client.schemas.codec import local_codec
from loomlog_client.schemas.generated.entity_events import CommandRefused
from loomlog_client.schemas.generated.memory_commands import SetEntry
from loomlog_client.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog_client.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog_client.schemas.reader import RawEvent

SERVICE = "crm"
SCOPE = "user"


class MemoryCopy:
    """What is remembered of customers, the positions up to which it was read, and the commands that have an answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else {}
        self.positions: Any = saved.get("positions", {})
        self.memory: dict[str, dict[str, Any]] = saved.get("memory", {})
        self.answered: set[str] = set(saved.get("answered", ()))

    def save(self) -> None:
        """Replace the file atomically and durably."""
        state = {"positions": self.positions, "memory": self.memory, "answered": sorted(self.answered)}
        temporary = self.path.with_name(self.path.name + ".new")
        with temporary.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def apply(self, event: RawEvent, customers: set[str], tenant: str) -> None:
        """Take in an event of a customer's memory."""
        customer = event.aggregate.removeprefix(f"memory:{tenant}/{SCOPE}/")
        if customer not in customers:
            return
        decoded = event.decode()
        keys = self.memory.setdefault(customer, {})
        match decoded.record:
            case EntrySet(key=key, value=value, source=source):
                keys[key] = None if value.startswith("lenc1") else json.loads(value)
                print(f"{customer}: {key} = {value} (by {author(source)})", flush=True)
            case EntryDeleted(key=key) | EntrySuperseded(key=key):
                keys.pop(key, None)
                print(f"{customer}: {key} is gone", flush=True)
            case EntriesExpired(keys=gone) | ScopeDropped(keys=gone):
                for key in gone:
                    keys.pop(key, None)
                    print(f"{customer}: {key} is gone", flush=True)
            case CommandRefused(code=code, message=message):
                print(f"{customer}: refused, {code}: {message}", file=sys.stderr, flush=True)
        if decoded.envelope is not None and decoded.envelope.cause_id.startswith(f"{SERVICE}:"):
            self.answered.add(decoded.envelope.cause_id)


def author(source: MemorySource) -> str:
    """Return who changed a memory: an agent with its run, or the subject of a principal or a service."""
    return f"{source.agent} in {source.run_id}" if source.run_id else source.principal


def commands(customers: dict[str, Any], tenant: str) -> dict[str, SetEntry]:
    """Return the commands that tell all facts of all customers, by their ids."""
    made = {}
    for customer, known in customers.items():
        for name, value in known["facts"].items():
            command_id = f"{SERVICE}:{customer}:{known['version']}:{name}"
            made[command_id] = SetEntry(
                # No issued_at_ms: it may have been sent before, so the owner looks the id up.
                envelope=CommandEnvelope(command_id=command_id, tenant=tenant, subject=SERVICE),
                scope=SCOPE,
                scope_id=customer,
                key=f"crm/{name}",
                value=json.dumps(value, allow_nan=False),
            )
    return made


async def send(bootstrap: str, topic: str, unanswered: dict[str, SetEntry]) -> None:
    """Append commands; the partitioner of aiokafka is Kafka's own, murmur2 of the record's key."""
    codec = local_codec()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    try:
        await producer.start()
        for command in unanswered.values():
            key = f"{command.envelope.tenant}/{command.scope}/{command.scope_id}".encode()
            await producer.send_and_wait(topic, key=key, value=codec.encode(command))
    finally:
        await producer.stop()


async def serve(options: argparse.Namespace) -> None:
    customers = json.loads(options.customers.read_text())
    copy, own = MemoryCopy(options.copy), commands(customers, options.tenant)
    await send(options.bootstrap, options.commands, {key: own[key] for key in own if key not in copy.answered})
    async with EventReader(options.bootstrap, copy.positions, topic=options.events) as reader:
        async for batch in reader:
            for event in batch:
                copy.apply(event, set(customers), options.tenant)
            if reader.positions != copy.positions:
                copy.positions = reader.positions
                copy.save()
            if options.once and copy.answered >= own.keys():
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--customers", type=Path, default=Path("customers.json"), help="file of the facts")
    parser.add_argument("--copy", type=Path, default=Path("memory.json"), help="file of the copy and the positions")
    parser.add_argument("--tenant", default="default", help="tenant of the customers (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="exit when every fact has an answer")
    parser.add_argument("--commands", default="loom.entity.commands", help="default: %(default)s")
    parser.add_argument("--events", default="loom.entity.events", help="default: %(default)s")
    try:
        asyncio.run(serve(parser.parse_args()))
    except (ClientError, KafkaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
