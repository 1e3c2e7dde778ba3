"""`loomlog dlq`: dead letters, records that could not be handled, with the reason and a way to replay them.

    ls              the newest dead letters: kind, writer, origin, reason, and whether they were replayed
    show OFFSET     one dead letter in full, its original decoded when that is possible by now
    replay OFFSET   append the original to its commands topic again
    ack OFFSET      note that nothing more is needed of it

Before: services/cli/main.py. After: services/application/log/dead_letters.py.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.configuration.driver_options import kafka_options
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, open_ranges
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.log.dead_letters import (
    MAX_RECORDS,
    DeadLetterEntry,
    DeadLetterKind,
    OpenLetters,
    acknowledge_letter,
    dead_letter_detail,
    dead_letter_json,
    read_dead_letter,
    read_dead_letters,
    replay_letter,
)
from loomlog.services.application.log.json_types import DeadLetterSummary
from loomlog.services.cli.commands import run
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, current_settings
from loomlog.services.cli.terminal.formatting import one_line
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, console, print_json, print_table

ERROR_CHARACTERS = 80
BY = "command line"
"""Name of the author of an acknowledgement that comes without a token."""

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Offset = Annotated[int, typer.Argument(min=0, metavar="OFFSET", help="Of the letter, as `loomlog dlq ls` shows it.")]

dead_letters_app = typer.Typer(
    help="Dead letters (records that could not be handled): list, show, replay and acknowledge them.",
    no_args_is_help=True,
)


@dead_letters_app.command("ls")
def list_dead_letters(
    kind: Annotated[DeadLetterKind | None, typer.Option(help="Only of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_RECORDS, help="At most so many, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List dead letters, the newest last."""
    cli = current_settings()
    letters = run(_load_dead_letters(cli, kind or "", limit))
    if as_json:
        codec = run(load_codec(cli.settings))
        print_json({"letters": [dead_letter_json(one, codec) for one in letters]})
        return
    out = console()
    if not letters:
        out.print(Text(f"There are no dead letters{f' of the kind {kind}' if kind else ''}.", style=SUCCESS))
        return
    rows = [
        [str(one.offset), format_rfc3339(one.letter.at_ms), one.letter.kind, one.letter.service, one.origin,
         _state(one), one_line(one.letter.error, ERROR_CHARACTERS)]
        for one in letters
    ]  # fmt: skip
    print_table(out, ["OFFSET", "AT", "KIND", "BY", "FROM", "", "ERROR"], rows, right_aligned=[0])


@dead_letters_app.command("show")
def show(offset: Offset, as_json: Json = False) -> None:
    """Show a dead letter in full, with its original."""
    cli = current_settings()
    entry = run(_load_dead_letter(cli, offset))
    shown = dead_letter_detail(entry, run(load_codec(cli.settings)))
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
    cli = current_settings()
    there = run(_replay_dead_letter(cli, offset, allow_repeat=again))
    if as_json:
        print_json({"offset": offset, "position": there})
    else:
        console().print(Text.assemble("The original is at ", (there, NAME), " now."))


@dead_letters_app.command("ack")
def acknowledge(
    offset: Offset,
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")] = "",
    as_json: Json = False,
) -> None:
    """Note that nothing more is needed of a dead letter; it is open no longer."""
    cli = current_settings()
    shown = run(_acknowledge_dead_letter(cli, offset, reason))
    if as_json:
        print_json(shown)
    else:
        console().print(Text(f"The dead letter {offset} is acknowledged.", style=SUCCESS))


async def count_open_letters(cli: CliSettings) -> int:
    """Return how many dead letters are neither replayed nor acknowledged."""
    async with open_ranges(kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())) as ranges:
        return await OpenLetters(ranges, await load_codec(cli.settings)).count()


async def _acknowledge_dead_letter(cli: CliSettings, offset: int, reason: str) -> DeadLetterSummary:
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    codec = await load_codec(cli.settings)
    async with _open_log(options) as (ranges, appender):
        entry = await read_dead_letter(ranges, codec, offset)
        at_ms = time.time_ns() // 1_000_000
        noted = await acknowledge_letter(appender, codec, entry, by=BY, reason=reason, at_ms=at_ms)
        return dead_letter_json(noted, codec)


async def _load_dead_letters(cli: CliSettings, kind: str, limit: int) -> list[DeadLetterEntry]:
    async with open_ranges(kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())) as ranges:
        return await read_dead_letters(ranges, await load_codec(cli.settings), kind=kind, limit=limit)


async def _load_dead_letter(cli: CliSettings, offset: int) -> DeadLetterEntry:
    async with open_ranges(kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())) as ranges:
        return await read_dead_letter(ranges, await load_codec(cli.settings), offset)


async def _replay_dead_letter(cli: CliSettings, offset: int, *, allow_repeat: bool) -> str:
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    codec = await load_codec(cli.settings)
    async with _open_log(options) as (ranges, appender):
        entry = await read_dead_letter(ranges, codec, offset)
        at_ms = time.time_ns() // 1_000_000
        return await replay_letter(appender, codec, entry, allow_repeat=allow_repeat, at_ms=at_ms)


@asynccontextmanager
async def _open_log(options: KafkaOptions) -> AsyncIterator[tuple[KafkaRanges, KafkaAppender]]:
    async with open_ranges(options) as ranges:
        appender = KafkaAppender(options)
        await appender.start()
        try:
            yield ranges, appender
        finally:
            await appender.close()


def _state(entry: DeadLetterEntry) -> str:
    if entry.replay_positions:
        return "put back"
    return "acknowledged" if entry.acknowledgement is not None else ""


def _print_dead_letter(out: Console, document: Mapping[str, Any]) -> None:
    for name, value in document.items():
        if isinstance(value, Mapping):
            out.print(Text(name, style=DIM))
            for part, text in value.items():
                if text is not None:
                    out.print(f"  {part}: {text}")
        elif value is not None:
            out.print(Text.assemble((f"{name}: ", DIM), (str(value), ERROR if name == "error" else "")))
