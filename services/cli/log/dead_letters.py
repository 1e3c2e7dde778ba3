"""`loomlog dlq`: dead letters, records that could not be handled, with the reason and a way to replay them.

    ls              the newest dead letters: kind, writer, origin, reason, and whether they were replayed
    show OFFSET     one dead letter in full, its original decoded when that is possible by now
    replay OFFSET   append the original to its commands topic again

A replayed command is handled like any other: if it had been handled after all, it has no second effect, because
commands are deduplicated by their ids. An original of an events topic is never replayed: only the owner of a partition
writes there, and the failure is repaired in the code or by restoring the topic. Each replay is a later record of its
own (DeadLetterReplayed), so nothing is replayed twice by mistake.

Before: services/cli/main.py. After: reader.py, connectors/kafka.
"""

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.configuration.driver_options import kafka_options
from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, count_partitions
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord, ProducerRecord
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import DeadLetter, DeadLetterReplayed
from loomlog.schemas.position import Position
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.log.reader import open_ranges, read_range, to_json_value
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, load_cli_settings
from loomlog.services.cli.terminal.formatting import one_line
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, console, print_json, print_table

TOPIC = "loom.dead-letter"
PARTITION = 0
MAX_RECORDS = 10_000
"""Records scanned for a list; an installation with more dead letters has another problem."""
ERROR_CHARACTERS = 80

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Offset = Annotated[int, typer.Argument(min=0, metavar="OFFSET", help="Of the letter, as `loomlog dlq ls` shows it.")]

dead_letters_app = typer.Typer(
    help="Dead letters (records that could not be handled): list, show and replay them.", no_args_is_help=True
)


class DeadLetterKind(StrEnum):
    """Reason why a record became a dead letter (DeadLetter.kind)."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown_schema"
    REFUSED = "refused"
    FOLD_BUG = "fold_bug"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterEntry:
    """A dead letter and its position. `replayed` are the positions where its original was appended again."""

    offset: int
    letter: DeadLetter
    replay_positions: tuple[str, ...] = ()

    @property
    def missing_value_reason(self) -> str:
        """Return why the original is not in the dead letter, and where it is; empty when it is in it."""
        if self.letter.value is not None:
            return ""
        return (
            f"Letter {self.offset} holds no bytes: the original is too large, was a tombstone, or says in clear what "
            f"is encrypted here. It is at {self.origin} as long as its topic keeps it."
        )

    @property
    def origin(self) -> str:
        return str(Position(topic=self.letter.topic, partition=self.letter.partition, offset=self.letter.offset))


@dead_letters_app.command("ls")
def list_dead_letters(
    kind: Annotated[DeadLetterKind | None, typer.Option(help="Only of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_RECORDS, help="At most so many, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List dead letters, the newest last."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    letters = [one for one in run(_load_dead_letters(cli)) if not kind or one.letter.kind == kind][-limit:]
    if as_json:
        print_json({"letters": [dead_letter_json(one) for one in letters]})
        return
    out = console()
    if not letters:
        out.print(Text(f"There are no dead letters{f' of the kind {kind}' if kind else ''}.", style=SUCCESS))
        return
    rows = [
        [str(one.offset), format_rfc3339(one.letter.at_ms), one.letter.kind, one.letter.service, one.origin,
         "put back" if one.replay_positions else "", one_line(one.letter.error, ERROR_CHARACTERS)]
        for one in letters
    ]  # fmt: skip
    print_table(out, ["OFFSET", "AT", "KIND", "BY", "FROM", "", "ERROR"], rows, right_aligned=[0])


@dead_letters_app.command("show")
def show(offset: Offset, as_json: Json = False) -> None:
    """Show a dead letter in full, with its original."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    entry = run(_load_dead_letter(cli, offset))
    shown = dead_letter_json(entry) | {"original": original_json(entry, run(load_codec(cli.settings)))}
    if as_json:
        print_json(shown)
        return
    _print_dead_letter(console(), shown)


@dead_letters_app.command("replay")
def replay(
    offset: Offset,
    again: Annotated[bool, typer.Option("--again", help="Also when it was put back before.")] = False,
    as_json: Json = False,
) -> None:
    """Append the original of a dead letter to its commands topic again."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    there = run(_replay_dead_letter(cli, offset, allow_repeat=again))
    if as_json:
        print_json({"offset": offset, "position": there})
    else:
        console().print(Text.assemble("The original is at ", (there, NAME), " now."))


async def _load_dead_letters(cli: CliSettings) -> list[DeadLetterEntry]:
    async with open_ranges(kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())) as ranges:
        return await read_dead_letters(ranges, await load_codec(cli.settings))


async def _load_dead_letter(cli: CliSettings, offset: int) -> DeadLetterEntry:
    async with open_ranges(kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())) as ranges:
        return await read_dead_letter(ranges, await load_codec(cli.settings), offset)


async def _replay_dead_letter(cli: CliSettings, offset: int, *, allow_repeat: bool) -> str:
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    codec = await load_codec(cli.settings)
    async with _open_log(options) as (ranges, appender):
        entry = await read_dead_letter(ranges, codec, offset)
        original = original_record(entry, allow_repeat=allow_repeat)
        count = await count_partitions(options, entry.letter.topic)
        partition = partition_of(original.key or b"", count) if count else 0
        return await replay_record(appender, codec, entry, original, partition, at_ms=time.time_ns() // 1_000_000)


@asynccontextmanager
async def _open_log(options: KafkaOptions) -> AsyncIterator[tuple[KafkaRanges, KafkaAppender]]:
    async with open_ranges(options) as ranges:
        appender = KafkaAppender(options)
        await appender.start()
        try:
            yield ranges, appender
        finally:
            await appender.close()


async def read_dead_letters(ranges: LogRanges, codec: Codec) -> list[DeadLetterEntry]:
    """Return the dead letters among the last MAX_RECORDS records of the topic, in log order."""
    end = await ranges.end_offset(TOPIC, PARTITION)
    start = max(await ranges.beginning_offset(TOPIC, PARTITION), end - MAX_RECORDS)
    return parse_dead_letters(await read_range(ranges, TOPIC, PARTITION, start, end), codec)


async def read_dead_letter(ranges: LogRanges, codec: Codec, offset: int) -> DeadLetterEntry:
    """Return one dead letter with all later records about it. Raises Failure when there is none."""
    end = await ranges.end_offset(TOPIC, PARTITION)
    if not await ranges.beginning_offset(TOPIC, PARTITION) <= offset < end:
        raise CliError(f"There is no dead letter {offset}. `loomlog dlq ls` shows what there is.")
    entries = parse_dead_letters(
        await read_range(ranges, TOPIC, PARTITION, offset, min(end, offset + MAX_RECORDS)), codec
    )
    if not entries or entries[0].offset != offset:
        raise CliError(f"The record at {Position(topic=TOPIC, partition=PARTITION, offset=offset)} is no dead letter.")
    return entries[0]


def parse_dead_letters(records: list[LogRecord], codec: Codec) -> list[DeadLetterEntry]:
    """Decode the dead letters among the records; other and undecodable records are left out."""
    letters: dict[int, DeadLetter] = {}
    replayed: dict[int, tuple[str, ...]] = {}
    for record in records:
        try:
            read = codec.decode(record.value or b"").record
        except Undecodable:
            continue  # only this project writes here; `loomlog events tail --topic loom.dead-letter` shows it
        if isinstance(read, DeadLetter):
            letters[record.offset] = read
        elif isinstance(read, DeadLetterReplayed):
            there = str(Position(topic=read.topic, partition=read.partition, offset=read.offset))
            replayed[read.letter_offset] = (*replayed.get(read.letter_offset, ()), there)
    return [
        DeadLetterEntry(offset=at, letter=letter, replay_positions=replayed.get(at, ()))
        for at, letter in letters.items()
    ]


def original_record(entry: DeadLetterEntry, *, allow_repeat: bool) -> ProducerRecord:
    """Return the original record unchanged. Raises Failure when it must not or cannot be replayed."""
    letter = entry.letter
    if not letter.topic.endswith(".commands"):
        raise CliError(
            f"Letter {entry.offset} is of {letter.topic}: only its owner writes there, so nothing can be put back. "
            "Repair the code that could not read it, then rebuild the projections or release the run."
        )
    if entry.missing_value_reason:
        raise CliError(entry.missing_value_reason)
    if entry.replay_positions and not allow_repeat:
        raise CliError(
            f"Letter {entry.offset} was put back already, at {', '.join(entry.replay_positions)}. --again "
            "does it once more."
        )
    return ProducerRecord(
        key=letter.key, value=letter.value, headers=tuple((one.key, one.value) for one in letter.headers)
    )


async def replay_record(
    appender: LogAppender, codec: Codec, entry: DeadLetterEntry, original: ProducerRecord, partition: int, *, at_ms: int
) -> str:
    """Append the original and a DeadLetterReplayed record; return the original's new position. Raises Failure."""
    topic = entry.letter.topic
    try:
        offset = await appender.append(topic, partition, [original])
    except UnknownOutcome as error:
        raise CliError(
            f"Whether the original reached {topic} is not known ({error}). Look at the end of it with `loomlog events "
            "tail`; putting it back once more does no harm."
        ) from error
    there = DeadLetterReplayed(letter_offset=entry.offset, topic=topic, partition=partition, offset=offset, at_ms=at_ms)
    note = ProducerRecord(key=entry.origin.encode(), value=codec.encode(there))
    there_now = str(Position(topic=topic, partition=partition, offset=offset))
    try:
        await appender.append(TOPIC, PARTITION, [note])
    except UnknownOutcome as error:
        raise CliError(
            f"The original is at {there_now} now, but whether that was noted is not known ({error})."
        ) from error
    return there_now


def dead_letter_json(entry: DeadLetterEntry) -> dict[str, Any]:
    """Return the fields of a dead letter that a list shows."""
    letter = entry.letter
    return {
        "offset": entry.offset,
        "at": format_rfc3339(letter.at_ms),
        "kind": letter.kind,
        "service": letter.service,
        "error": letter.error,
        "from": entry.origin,
        "replayed": list(entry.replay_positions),
    }


def original_json(entry: DeadLetterEntry, codec: Codec) -> dict[str, Any]:
    """Return the original: its bytes, and its decoded fields if possible by now; or why it is missing."""
    letter = entry.letter
    shown: dict[str, Any] = {
        "key": to_json_value(letter.key or b""),
        "headers": {header.key: to_json_value(header.value) for header in letter.headers},
        "timestamp": format_rfc3339(letter.timestamp_ms),
        "value_hex": None if letter.value is None else letter.value.hex(),
    }
    if letter.value is None:
        return shown | {"type": None, "unreadable": entry.missing_value_reason}
    try:
        decoded = codec.decode(letter.value)
    except Undecodable as error:
        return shown | {"type": None, "unreadable": str(error)}
    return shown | {"type": type(decoded.record).__name__, "payload": to_json_value(decoded.record.to_avro())}


def _print_dead_letter(out: Console, document: Mapping[str, Any]) -> None:
    for name, value in document.items():
        if isinstance(value, Mapping):
            out.print(Text(name, style=DIM))
            for part, text in value.items():
                if text is not None:
                    out.print(f"  {part}: {text}")
        else:
            out.print(Text.assemble((f"{name}: ", DIM), (str(value), ERROR if name == "error" else "")))
