"""What the read model has to say, folded from the accepted history a second time and compared row by row.

One run's row: status, stop reason, turns, tokens, calls, errors, and where its events lie. While a run is live its sums
are those of its turns; the event that ends it carries the owner's own sums, which have to be the same.

The sums over all runs are compared too: they are added to, so a batch that was projected twice shows here first.

Before: history.  After: checker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from tests.chaos.evidence import Row, Spent
from tests.chaos.history import ENDS, Event, Violation


@dataclass(slots=True)
class Folded:
    """A row in the making."""

    partition: int
    first_offset: int
    status: str = "running"
    stop_reason: str = ""
    error_code: str = ""
    iterations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    model_errors: int = 0
    last_offset: int = -1
    last_seq: int = 0

    def row(self) -> Row:
        return Row(**{field.name: getattr(self, field.name) for field in fields(Row)})


def folded(events: Iterable[Event]) -> tuple[dict[str, Row], Spent, list[Violation]]:
    """The rows of all accepted runs, what they spent in all, and ends whose sums are not those of their turns.

    `events` are accepted ones, each run's in the order of its offsets.
    """
    result: dict[str, Folded] = {}
    violations: list[Violation] = []
    calls = values = written = 0
    for event in events:
        run = result.get(event.run_id)
        if run is None:
            if event.name != "RunStarted":
                continue  # a request that was refused is no run
            run = result[event.run_id] = Folded(event.partition, event.offset)
        run.last_offset, run.last_seq = event.offset, event.seq
        if event.name == "ModelReplied":
            calls += 1
            values += event.values["usage"]["input_tokens"]
            written += event.values["usage"]["output_tokens"]
        wrong = _follow(run, event)
        if wrong:
            violations.append(Violation(kind="sums", text=f"{event.run_id}: {event.name} at {event.place} {wrong}"))
    spent = Spent(calls=calls, input_tokens=values, output_tokens=written)
    return {name: run.row() for name, run in result.items()}, spent, violations


def _follow(run: Folded, event: Event) -> str:
    """The next event; what is wrong with the sums it carries, empty when nothing is."""
    values = event.values
    match event.name:
        case "ModelReplied":
            run.iterations += 1
            run.input_tokens += values["usage"]["input_tokens"]
            run.output_tokens += values["usage"]["output_tokens"]
        case "ModelCallFailed":
            run.model_errors += 1
        case "ToolCallRequested":
            run.tool_calls += values["attempt"] == 1
        case "ToolReturned":
            run.tool_errors += values["is_error"]
        case "RunCompleted" | "RunFailed" | "RunCancelled":
            run.status = ENDS[event.name]
            reason = values.get("stop_reason") or values.get("reason") or ""
            run.stop_reason = reason or ("cancelled" if run.status == "cancelled" else "")
            run.error_code = values.get("code") or ""
            return _wrong_sums(run, event)
    return ""


def _wrong_sums(run: Folded, event: Event) -> str:
    usage = event.values["usage"]
    values = (event.values["iterations"], usage["input_tokens"], usage["output_tokens"])
    summed = (run.iterations, run.input_tokens, run.output_tokens)
    if values == summed:
        return ""
    return f"carries turns and tokens {values}, the turns before it sum up to {summed}"


def compared(
    expected: Mapping[str, Row], rows: Mapping[str, Row], spent: Spent, told: Spent | None
) -> Iterable[Violation]:
    """The read model says of every run what the log says, and of nothing else."""
    for name, wanted in expected.items():
        row = rows.get(name)
        if row is None:
            yield Violation(kind="row", text=f"{name}: has no row, the log says {wanted}")
        elif row != wanted:
            yield Violation(kind="row", text=f"{name}: {_difference(wanted, row)}")
    for name in sorted(set(rows) - set(expected)):
        yield Violation(kind="row", text=f"{name}: has a row, but no accepted run")
    if told is not None and told != spent:
        yield Violation(kind="spent", text=f"the answers in the log sum up to {spent}, the read model says {told}")


def _difference(wanted: Row, row: Row) -> str:
    names = [field.name for field in fields(Row) if getattr(wanted, field.name) != getattr(row, field.name)]
    return ", ".join(f"{name} is {getattr(row, name)!r}, the log says {getattr(wanted, name)!r}" for name in names)
