"""The verdict as a table for people.

Before: main, test_kill_anything.  After: nothing.
"""

from collections.abc import Mapping, Sequence

from tests.chaos.campaign import Outcome
from tests.chaos.result import percentiles

SHOWN_VIOLATIONS = 40
"""The first ones tell what is wrong; a broken system would have thousands."""


def report(outcome: Outcome) -> str:
    """Figures, what clients met, and every violation up to a bound."""
    figures = outcome.verdict.figures
    lines = [
        _line("seeds", ", ".join(map(str, outcome.seeds))),
        _line("faults", _counts(figures.strikes)),
        _line("runs", f"{figures.runs}, {figures.cancelled} of them cancelled"),
        _line("commands", f"{figures.commands}, {figures.repeated_commands} of them repeated"),
        _line("events accepted", str(figures.events)),
        _line("claims", _counts(figures.claims)),
        _line("definitions promoted", f"{figures.promotions}, each with a run of that version"),
        _line("calls under rules", f"{_counts(figures.ruled_calls)}; {figures.notes} lines of an MCP server"),
        _line("memory", f"{figures.memory_calls} calls returned, {figures.memory_changes} changes"),
        _line("channels", f"{figures.messages} messages, {figures.messages_delivered} delivered to runs"),
        _line("triggers", f"{figures.fires} fires of a schedule, {figures.deliveries} deliveries of a webhook"),
        _line("lost", str(figures.lost)),
        _line("doubled", str(figures.doubled)),
        _line("stuck", str(figures.stuck)),
        _line("effects recorded", f"{figures.recorded_effects}, {figures.effects} happened"),
        _line(
            "outcome unknown",
            f"{figures.unknown_outcomes} calls, {figures.unknown_with_effect} of them with their effect",
        ),
        _line("tool calls repeated", f"{figures.repeated_tool_calls} ({figures.failed_tool_calls} failed)"),
        _line("model calls re-run", str(figures.interrupted_model_calls)),
        _line("stale records", f"{figures.stale}, ignored by everybody"),
        _line("dead letters", str(figures.dead_letters)),
        *(
            _line(f"{who}: {what}", _spread(by.get(who, ())))
            for who in ("standby", "group")
            for what, by in (("claimed", figures.claimed_by_ms), ("first event", figures.went_on_by_ms))
        ),
        _line("refused without quorum", _spread(figures.refusals_ms)),
    ]
    for target in sorted(figures.strikes):
        lines.append(_line(f"{target}: stood still", _spread(figures.pauses_ms.get(target, ()))))
        lines.append(_line(f"{target}: up again", _spread(figures.back_ms.get(target, ()))))
    lines.append(_line("clients met", _counts(outcome.met)))
    lines.append(_line("ended by themselves", _counts(outcome.own_ends)))
    violations = outcome.verdict.violations
    lines.append(_line("violations", str(len(violations))))
    lines += [f"  {violation.kind}: {violation.text}" for violation in violations[:SHOWN_VIOLATIONS]]
    if len(violations) > SHOWN_VIOLATIONS:
        lines.append(f"  and {len(violations) - SHOWN_VIOLATIONS} more")
    return "\n".join(lines)


def _line(name: str, value: str) -> str:
    return f"{name:26} {value}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


def _spread(values: Sequence[float]) -> str:
    """Percentiles of milliseconds."""
    if not values:
        return "no figure"
    result = percentiles(values)
    return f"p50 {result['p50']} ms, p99 {result['p99']} ms, max {result['max']} ms ({result['count']} figures)"
