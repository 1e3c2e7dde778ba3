"""`loomlog limits reset`: archives a budget topic that can no longer be read, after the operator confirms it.

    loomlog pause --reason "repair"       nothing is spent meanwhile
    loomlog limits reset FILE                shows where reading stops and the limits at that point; changes nothing
    loomlog limits reset FILE --confirm      writes every record of the topic to FILE, then deletes them from the log

Reading stops at an event that cannot follow the one before it: a record was lost, damaged, or written by another
program. Its content is unknown, so continuing after it could let a hard limit be exceeded. After a reset, each limit
counts what the read models know of the month, as every first limit of an account does.

Not chosen: skipping the event (its reservations would be released). Better, and not built: an event after it that
restates limits and sums, which every fold of the topic would have to know.

Before: budget_limits.py. After: connectors/kafka/admin.py, services/families/budget/replica.py.
"""

import base64
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.configuration.driver_options import kafka_options
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, delete_records
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.connectors.storage import private_files
from loomlog.schemas.codec import Codec
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.log.reader import open_ranges
from loomlog.services.cli.runs.runs import Json, open_api
from loomlog.services.cli.settings import CLIENT_ID, load_cli_settings
from loomlog.services.cli.terminal.formatting import MICROS, number, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json
from loomlog.services.families.budget.family import PARTITION, BudgetFamily, topics_of
from loomlog.services.families.budget.replica import BudgetReplica
from loomlog.services.families.budget.state import OPERATOR, USER, AccountUsage, BudgetState, Limit
from loomlog.services.stream.family import Topics
from loomlog.services.stream.snapshots.snapshots import Snapshots

STATE_PATH = "/v1/_state"


def reset(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, which keeps all records of the books.")],
    confirm: Annotated[bool, typer.Option("--confirm", help="Do it; without it nothing is done.")] = False,
    as_json: Json = False,
) -> None:
    """Archive a budget topic that can no longer be read, so that runs can start again. Everything has to be paused."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())

    async def done() -> tuple[BudgetReplica, int]:
        await _require_paused()
        codec = await load_codec(cli.settings)
        board = await read_budget_table(options, codec, topics_of())
        if not board.broken:
            raise CliError(
                "The budget topic can be read to its end, so there is nothing to reset. If a process reports "
                "otherwise, restart it."
            )
        return board, await archive_records(options, topics_of(), file) if confirm else 0

    board, kept = run(done())
    if as_json:
        limits = [limit_command(limit) for limit in board.books.limits.values()]
        print_json({"broken": board.broken, "kept_records": kept, "limits": limits})
        return
    out = console()
    out.print(Text(board.broken, style=ERROR))
    out.print("The limits at that point, with the used and reserved amounts of each:")
    for line in limit_lines(board.books):
        out.print(line)
    if not confirm:
        out.print(Text(f"Nothing was changed. To reset: loomlog limits reset {file} --confirm", style=WARNING))
        return
    out.print(
        Text(
            f"{pluralize(kept, 'record')} of the budget topic are stored in {file} and deleted from the log.",
            style=SUCCESS,
        )
    )
    out.print("Now start every runtime and api again, set the limits with the lines above, then `loomlog resume`.")


async def read_budget_table(options: KafkaOptions, codec: Codec, topics: Topics) -> BudgetReplica:
    """Read the budget topic to its end, or to where it is `broken`. Raises Transient."""
    async with open_ranges(options) as ranges:
        appender = KafkaAppender(options)  # reading does not need it
        snapshots = Snapshots(BudgetFamily(), codec, appender=appender, ranges=ranges, topic=topics.snapshots)
        board = BudgetReplica(codec, topics, snapshots, ranges)
        await board.open()
    return board


async def archive_records(options: KafkaOptions, topics: Topics, file: Path) -> int:
    """Write every budget event and command to the file, delete them from the log, and return their number.

    Raises Failure before anything is deleted when the file exists or cannot be written. Raises Transient.
    """
    kept = 0
    ends: dict[str, int] = {}
    async with open_ranges(options) as ranges:
        try:
            with private_files.create_file(file) as out:
                for topic in (topics.events, topics.commands):
                    ends[topic] = await ranges.end_offset(topic, PARTITION)
                    async for record in _read_records(ranges, topic, ends[topic]):
                        out.write(json.dumps(_record_json(record)).encode() + b"\n")
                        kept += 1
                out.flush()
                os.fsync(out.fileno())
        except FileExistsError as error:
            raise CliError(f"{file} is there already; name a new file.") from error
        except OSError as error:
            raise CliError(f"{file} cannot be written: {error.strerror}. Nothing was deleted.") from error
    for topic, end in ends.items():
        await delete_records(options, topic, PARTITION, before=end)
    return kept


def limit_lines(state: BudgetState) -> list[Text]:
    """Return each limit as the command that sets it, with its used and reserved amounts."""
    lines = []
    for key, limit in state.limits.items():
        account = state.accounts.get(key, AccountUsage())
        used = f"{number(account.used_tokens)} and {number(account.reserved_tokens)} tokens"
        if limit.currency:
            amounts = _format_amount(account.used_micros), _format_amount(account.reserved_micros)
            used += f", {amounts[0]} and {amounts[1]} {limit.currency}"
        lines.append(Text.assemble("  ", (limit_command(limit), NAME), (f"   # {used}", DIM)))
    return lines or [Text("  none", style=DIM)]


def limit_command(limit: Limit) -> str:
    """Return the command line that sets a limit."""
    whose = "--everybody" if limit.scope == OPERATOR else f"--tenant {quote(limit.tenant)}"
    words = ["loomlog limits set", whose, *([f"--user {quote(limit.scope_id)}"] if limit.scope == USER else [])]
    for option, tokens in (("--soft", limit.soft_tokens), ("--hard", limit.hard_tokens)):
        words += [f"{option} {tokens}"] if tokens is not None else []
    for option, micros in (("--soft-money", limit.soft_micros), ("--hard-money", limit.hard_micros)):
        words += [f"{option} {_format_amount(micros)}"] if micros is not None else []
    return " ".join([*words, *(["--strict"] if limit.strict else [])])


def _format_amount(micros: int) -> str:
    whole, rest = divmod(micros, MICROS)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


async def _read_records(ranges: LogRanges, topic: str, end: int) -> AsyncIterator[LogRecord]:
    begins = await ranges.beginning_offset(topic, PARTITION)
    if begins >= end:
        return
    async with await ranges.read(topic, PARTITION, begins, end) as chunks:
        async for chunk in chunks:
            for record in chunk:
                yield record


def _record_json(record: LogRecord) -> Mapping[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


async def _require_paused() -> None:
    async with open_api() as api:
        status = await api.get(STATE_PATH)
    if status["state"] != "paused":
        raise CliError(
            f"The installation is {status['state']}. Pause everything first (`loomlog pause`), until `loomlog state` "
            "reports paused: spending during the reset would not be counted."
        )
