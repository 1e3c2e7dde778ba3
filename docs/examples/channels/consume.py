"""Consume the messages of a channel of loomlog from the log, each once, and append them to a file.

In the top folder of a clone:

    pip install './connectors/client[kafka]'
    python docs/examples/channels/consume.py --bootstrap 127.0.0.1:19092 --channel orders --to orders.jsonl

It reads as a copy does: no cursor of loomlog moves, and agents that read the channel miss nothing.

Four things make it correct:
  1. the term rule: late records of a fenced owner are in the topic too; EventReader leaves them out;
  2. a message is visible where it has a position: one that was delayed has it in a later event, MessagesSurfaced;
  3. the work is done first, then positions and the messages that are still delayed are saved, together;
  4. so work may be repeated after a crash: a message whose id is in the file already is left out.

Values in the events are encrypted where loomlog has an encryption key: then follow the channel over HTTP instead
(GET /v1/_channels/orders/stream).
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from loomlog_client import ClientError
from loomlog_client.events import EventReader
from loomlog_client.schemas.generated.channel_events import MessagePublished, MessagesDropped, MessagesSurfaced
from loomlog_client.schemas.reader import RawEvent

ENCRYPTED = "lenc1"
"""Beginning of a value that is encrypted."""


class Messages:
    """The file of messages, and beside it the positions and the messages that are still delayed."""

    def __init__(self, path: Path) -> None:
        self._file = path
        self._state = path.with_name(path.name + ".state")
        saved = json.loads(self._state.read_text()) if self._state.exists() else {}
        self.positions: Any = saved.get("positions", {})
        self.delayed: dict[str, Any] = saved.get("delayed", {})
        """By queue and number."""
        self.ids = {json.loads(line)["id"] for line in path.open()} if path.exists() else set[str]()

    def append(self, message: dict[str, Any]) -> None:
        """Append a message, unless it is there."""
        if message["id"] not in self.ids:
            self.ids.add(message["id"])
            with self._file.open("a") as file:
                file.write(json.dumps(message) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def save(self, positions: Any) -> None:
        """Replace the state atomically and durably."""
        self.positions = positions
        temporary = self._state.with_name(self._state.name + ".new")
        with temporary.open("w") as file:
            json.dump({"positions": self.positions, "delayed": self.delayed}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._state)


def visible(event: RawEvent, delayed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages that an event makes visible; those that are delayed are kept in `delayed`."""
    match event.decode().record:
        case MessagePublished() as published:
            value = None if published.value.startswith(ENCRYPTED) else json.loads(published.value)
            message = {"id": published.message_id, "value": value, "publisher": published.publisher}
            if published.position:
                yield message
            else:
                delayed[f"{event.aggregate} {published.number}"] = message
        case MessagesSurfaced(messages=surfaced):
            for one in surfaced:
                known = delayed.pop(f"{event.aggregate} {one.number}", None)
                if known is not None:  # it was delayed before the oldest event that the topic keeps
                    yield known
        case MessagesDropped(count=count):
            print(f"{event.aggregate}: the queue has dropped {count} of its oldest messages", file=sys.stderr)
        case _:
            return


async def consume(options: argparse.Namespace) -> None:
    messages = Messages(options.to)
    tenant = "" if options.scope == "global" else options.tenant
    queue = f"channel:{tenant}/{quote(options.channel, safe='')}/{options.scope}/{quote(options.scope_id, safe='')}"
    async with EventReader(options.bootstrap, messages.positions, topic=options.topic) as reader:
        async for batch in reader:
            for event in batch:
                if event.aggregate == queue:
                    for message in visible(event, messages.delayed):
                        messages.append(message)
            if reader.positions != messages.positions:
                messages.save(reader.positions)
            if options.count and len(messages.ids) >= options.count:
                return


def main() -> int:
    parser = argparse.ArgumentParser(description="Append the messages of a channel to a file, each once.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--channel", required=True, help="name of the channel")
    parser.add_argument("--scope", default="tenant", choices=("global", "tenant", "user", "agent"), help="as declared")
    parser.add_argument("--scope-id", default="", help="the user or the agent, of a channel with that scope")
    parser.add_argument("--tenant", default="default", help="tenant of the queue (default: %(default)s)")
    parser.add_argument("--to", type=Path, default=Path("messages.jsonl"), help="file of the messages")
    parser.add_argument("--count", type=int, default=0, help="exit when the file has so many (default: run forever)")
    parser.add_argument("--topic", default="loom.channel.events", help="default: %(default)s")
    try:
        asyncio.run(consume(parser.parse_args()))
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
