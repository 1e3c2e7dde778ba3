"""Publish a message to a channel of loomlog by producing one record. No API is called, only the broker is awaited.

In the top folder of a clone:

    pip install './connectors/client[kafka]'
    python docs/examples/channels/publish.py --bootstrap 127.0.0.1:19092 --channel orders --id order-17 '{"order": 17}'

Three things make it correct:
  1. the key of the record is `<tenant>/<channel>/<scope>/<scope id>`, channel and scope id escaped: the owner of that
     partition decides about the queue;
  2. the id of the command is that of the thing that is told: sent again after a crash, it publishes nothing twice;
  3. scope, time to live and most messages are those of the channel's declaration, which the topic does not check.

A program that may write to the topic may publish to every queue: let only services that you trust do so, and others
use HTTP.
"""

import argparse
import asyncio
import json
import sys
from urllib.parse import quote

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from loomlog_client.schemas.codec import local_codec
from loomlog_client.schemas.generated.channel_commands import PublishMessage
from loomlog_client.schemas.generated.values import CommandEnvelope

SERVICE = "publish example"
SHARED_TENANT = ""
"""Tenant of the queues of the scope global."""


def queue_key(tenant: str, channel: str, scope: str, scope_id: str) -> bytes:
    """Return the key of the records of a queue."""
    return f"{tenant}/{quote(channel, safe='')}/{scope}/{quote(scope_id, safe='')}".encode()


async def publish(options: argparse.Namespace) -> None:
    tenant = SHARED_TENANT if options.scope == "global" else options.tenant
    command = PublishMessage(
        # No issued_at_ms: it may have been sent before, so the owner looks the id up.
        envelope=CommandEnvelope(command_id=f"{SERVICE}:{options.id}", tenant=tenant, subject=SERVICE),
        channel=options.channel,
        scope=options.scope,
        scope_id=options.scope_id,
        value=json.dumps(json.loads(options.value), allow_nan=False),
        ttl_ms=1_000 * options.ttl_seconds,
        max_messages=options.max_messages,
        publisher=SERVICE,
    )
    # The partitioner of aiokafka is Kafka's own, murmur2 of the record's key.
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, acks="all", enable_idempotence=True)
    try:
        await producer.start()
        key = queue_key(tenant, options.channel, options.scope, options.scope_id)
        sent = await producer.send_and_wait(options.topic, key=key, value=local_codec().encode(command))
    finally:
        await producer.stop()
    print(f"{sent.topic}/{sent.partition}/{sent.offset}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Publish a message by producing a PublishMessage record.")
    parser.add_argument("value", help="JSON, at most 64 KiB")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--channel", required=True, help="name of the channel")
    parser.add_argument("--id", required=True, help="id of what is told; the same one is published once")
    parser.add_argument("--scope", default="tenant", choices=("global", "tenant", "user", "agent"), help="as declared")
    parser.add_argument("--scope-id", default="", help="the user or the agent, of a channel with that scope")
    parser.add_argument("--tenant", default="default", help="tenant of the queue (default: %(default)s)")
    parser.add_argument("--ttl-seconds", type=int, default=0, help="seconds until it is gone; 0: for ever")
    parser.add_argument("--max-messages", type=int, default=0, help="messages that the queue keeps; 0: any number")
    parser.add_argument("--topic", default="loom.channel.commands", help="default: %(default)s")
    try:
        asyncio.run(publish(parser.parse_args()))
    except (KafkaError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
