"""Start a run by producing one record. No API is called, only the broker is awaited.

In the top folder of a clone:

    pip install './connectors/client[kafka]'
    python docs/examples/start_run.py --bootstrap 127.0.0.1:19092 --agent assistant "What is a term?"

Once the broker has acknowledged the record the run will start, whatever happens to this program or to loomlog. Results
arrive as events: follow_events.py. The same --idempotency-key always refers to the same run.
"""

import argparse
import asyncio
import sys

from loomlog_client import Unreachable
from loomlog_client.producer import RunProducer
from loomlog_client.schemas.producer import COMMANDS_TOPIC


async def start(options: argparse.Namespace) -> None:
    async with RunProducer(options.bootstrap, subject="start_run example", topic=options.topic) as producer:
        run = await producer.start_run(
            options.agent, options.prompt, tenant=options.tenant, idempotency_key=options.idempotency_key
        )
    print(f"run {run.run_id}")
    print(f"position {run.position}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Start a run by producing a StartRun record.")
    parser.add_argument("prompt", help="the prompt for the agent")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--agent", required=True, help="name of the agent")
    parser.add_argument("--idempotency-key", default="", help="the same key is the same run (default: a new run)")
    parser.add_argument("--tenant", default="default", help="tenant of the run (default: %(default)s)")
    parser.add_argument("--topic", default=COMMANDS_TOPIC, help="default: %(default)s")
    try:
        asyncio.run(start(parser.parse_args()))
    except Unreachable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
