"""Consume the events of all runs correctly, and store the answer of each run in a file, once.

In the top folder of a clone:

    pip install './connectors/client[kafka]'
    python docs/examples/follow_events.py --bootstrap 127.0.0.1:19092 --state follow.json --answers answers

Three things make a consumer correct:
  1. the term rule: late records of a fenced owner are in the topic too; EventReader leaves them out;
  2. positions and results up to them are saved together, after the work: a crash repeats work and loses none;
  3. so the work is idempotent: the file of an answer is named by its run.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from loomlog_client import ClientError
from loomlog_client.events import EventReader
from loomlog_client.schemas.generated.run_events import ModelReplied, RunCancelled, RunCompleted, RunFailed, RunRefused
from loomlog_client.schemas.producer import EVENTS_TOPIC
from loomlog_client.schemas.reader import RawEvent


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def handle(event: RawEvent, texts: dict[str, str], answers: Path) -> str:
    """Handle an event and return the id of the run it ended, if any. `texts` has the last answer of each live run."""
    run_id = event.aggregate
    match event.decode().record:
        case ModelReplied(text=text, text_blob=blob):
            texts[run_id] = text if blob is None else f"[{blob.size_bytes} bytes in the blob store: {blob.sha256}]"
            return ""
        case RunCompleted():
            result = texts.get(run_id, "")
        case RunFailed(error=reason) | RunCancelled(reason=reason) | RunRefused(message=reason):
            result = f"did not complete: {reason}"
        case _:
            return ""
    texts.pop(run_id, None)
    answer = answers / f"{run_id}.txt"
    if not answer.exists():  # it exists when a crash came after the work and before the positions were saved
        replace_file(answer, result)
        print(f"{run_id}: {result}", flush=True)
    return run_id


def report_undecodable(topic: str, partition: int, offset: int, error: Exception) -> None:
    """Report a record of another program, or of a newer loomlog; it is skipped."""
    print(f"{topic}/{partition} offset {offset}: {error}", file=sys.stderr)


async def follow(options: argparse.Namespace) -> None:
    options.answers.mkdir(parents=True, exist_ok=True)
    state: Any = json.loads(options.state.read_text()) if options.state.exists() else {"positions": {}, "texts": {}}
    async with EventReader(
        options.bootstrap, state["positions"], topic=options.topic, on_undecodable=report_undecodable
    ) as reader:
        async for batch in reader:
            ended = {handle(event, state["texts"], options.answers) for event in batch}
            if reader.positions != state["positions"]:
                state["positions"] = reader.positions
                replace_file(options.state, json.dumps(state))
            if options.until in ended:
                return


def main() -> int:
    parser = argparse.ArgumentParser(description="Store the answer of every run in a file, once.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--state", type=Path, default=Path("follow.json"), help="file of the positions")
    parser.add_argument("--answers", type=Path, default=Path("answers"), help="folder of one file for each run")
    parser.add_argument("--until", metavar="RUN_ID", help="exit after this run (default: run forever)")
    parser.add_argument("--topic", default=EVENTS_TOPIC, help="default: %(default)s")
    try:
        asyncio.run(follow(parser.parse_args()))
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
