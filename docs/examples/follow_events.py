"""Read the events of all runs rightly, and keep the answer of each run in a file, once.

    python docs/examples/follow_events.py --bootstrap 127.0.0.1:19092 --state follow.json --answers answers

Three things make a reader right:
  1. the term rule: the late records of a fenced owner are in the topic too, and TermReader leaves them out;
  2. the position and what was gathered up to it are saved together, after the work: a crash repeats work, loses none;
  3. so the work is such that repeating it changes nothing: the file of an answer is named by its run.

No consumer group: every reader keeps its own place. Needs: aiokafka[lz4], and the folder schemas/ of loomlog with
fastavro and msgspec.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from loomlog.schemas.codec import Undecodable
from loomlog.schemas.generated.run_events import ModelReplied, RunCancelled, RunCompleted, RunFailed, RunRefused
from loomlog.schemas.producer import EVENTS_TOPIC
from loomlog.schemas.reader import RawEvent, TermReader


def replace_file(path: Path, text: str) -> None:
    """The old text or the new one, never half of one, also when the power fails."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def handle(event: RawEvent, texts: dict[str, str], answers: Path) -> str:
    """One event of the one true history; the run it ended, if it did. `texts` has the last answer of each live run."""
    run_id = event.aggregate
    match event.decode().record:
        case ModelReplied(text=text, text_blob=blob):
            texts[run_id] = text if blob is None else f"[{blob.size_bytes} bytes in the blob store: {blob.sha256}]"
            return ""
        case RunCompleted():
            result = texts.get(run_id, "")
        case RunFailed(error=why) | RunCancelled(reason=why) | RunRefused(message=why):
            result = f"did not complete: {why}"
        case _:
            return ""
    texts.pop(run_id, None)
    answer = answers / f"{run_id}.txt"
    if not answer.exists():  # otherwise a crash came after the work and before its position was saved
        replace_file(answer, result)
        print(f"{run_id}: {result}", flush=True)
    return run_id


async def partitions_of(topic: str, bootstrap: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (description,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    if description["error_code"]:
        raise SystemExit(f"there is no topic {topic} at {bootstrap}")
    return [TopicPartition(topic, partition["partition"]) for partition in description["partitions"]]


async def follow(options: argparse.Namespace) -> None:
    options.answers.mkdir(parents=True, exist_ok=True)
    state: Any = json.loads(options.state.read_text()) if options.state.exists() else {"positions": {}, "texts": {}}
    async with AIOKafkaConsumer(bootstrap_servers=options.bootstrap, auto_offset_reset="none") as consumer:
        places = await partitions_of(options.topic, options.bootstrap)
        consumer.assign(places)
        readers: dict[int, TermReader] = {}
        for place, beginning in (await consumer.beginning_offsets(places)).items():
            next_offset, term = state["positions"].get(str(place.partition), [beginning, -1])
            readers[place.partition] = TermReader(next_offset=next_offset, term=term)
            consumer.seek(place, next_offset)
        while True:
            ended = set()
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                for record in records:
                    try:
                        event = readers[place.partition].read(record.offset, record.value)
                        if event is not None:
                            ended.add(handle(event, state["texts"], options.answers))
                    except Undecodable as error:  # of another system, or of a newer loomlog: tell, and go on
                        print(f"{place.topic}/{place.partition} offset {record.offset}: {error}", file=sys.stderr)
            positions = {str(n): [reader.next_offset, reader.term] for n, reader in readers.items()}
            if positions != state["positions"]:
                state["positions"] = positions
                replace_file(options.state, json.dumps(state))
            if options.until in ended:
                return


def main() -> int:
    parser = argparse.ArgumentParser(description="Keep the answer of every run in a file, once.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--state", type=Path, default=Path("follow.json"), help="where positions are kept")
    parser.add_argument("--answers", type=Path, default=Path("answers"), help="folder of one file for each run")
    parser.add_argument("--until", metavar="RUN_ID", help="end after this run (default: go on for ever)")
    parser.add_argument("--topic", default=EVENTS_TOPIC, help="default: %(default)s")
    asyncio.run(follow(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
