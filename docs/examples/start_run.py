"""Start a run by producing one record. No API is called, nothing is waited for but the broker.

    python docs/examples/start_run.py --bootstrap 127.0.0.1:19092 --agent assistant "What is a term?"

Once the broker has acknowledged the record the run will start, whatever happens to this program or to loomlog. Results
come as events: follow_events.py. With --idempotency-key the same key is the same run, however often this is started.

Needs: aiokafka[lz4], and the folder schemas/ of loomlog with fastavro and msgspec.
"""

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from loomlog.schemas.producer import COMMANDS_TOPIC, start_run_record


async def start(options: argparse.Namespace) -> None:
    # The record carries the run id it will get, so sending it again is harmless: one id, one run.
    record = start_run_record(
        agent=options.agent,
        prompt=options.prompt,
        tenant=options.tenant,
        subject="start_run example",
        idempotency_key=options.idempotency_key,
    )
    # The key decides the partition, and the partition's owner decides about the run. aiokafka's default partitioner is
    # Kafka's own (murmur2); with another client, choose that one. acks="all" is what makes "accepted" mean durable.
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, acks="all", enable_idempotence=True)
    async with producer:
        place = await producer.send_and_wait(options.topic, key=record.key, value=record.value, headers=record.headers)
    print(f"run {record.run_id}")
    print(f"position {place.topic}/{place.partition}/{place.offset}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Start a run by producing a StartRun record.")
    parser.add_argument("prompt", help="what the agent is asked")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--agent", required=True, help="name of the agent")
    parser.add_argument("--idempotency-key", default="", help="the same key is the same run (default: a new run)")
    parser.add_argument("--tenant", default="default", help="tenant the run belongs to (default: %(default)s)")
    parser.add_argument("--topic", default=COMMANDS_TOPIC, help="default: %(default)s")
    try:
        asyncio.run(start(parser.parse_args()))
    except KafkaError as error:
        # It may be in the log all the same. Sent again under the same idempotency key it is still one run.
        print(f"not acknowledged: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
