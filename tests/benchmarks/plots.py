"""The pictures of docs/figures: small SVG line charts, written by hand so that no drawing library is needed.

    python -m tests.benchmarks.plots [FOLDER]

One picture for each file of `bench-scale` there is. Axes begin at 0 or are logarithmic; each line is named where it
ends, so that no legend has to be looked up and no colour has to be told from another.
"""

import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.benchmarks.scaling import FIGURES

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 150, 60, 56
COLOURS = ("#1b6ca8", "#c1502e", "#3d7a3d", "#7a4b9b", "#8a6d1d")
DASHES = ("", "", "7 5", "2 4", "10 3 2 3")
"""So that a line which lies on another shows it through its gaps."""
LABEL_GAP = 15
"""Least distance between the names of two lines, in pixels."""
TICKS = 5
FEW_DECADES = 2.0
"""A logarithmic axis that spans less has ticks at 2 and 5 as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points from left to right; x and y in the units of the axes."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One chart. A logarithmic x has a tick for each value, a linear one for each value too: there are few."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = True
    log_y: bool = False


def svg(picture: Picture, note: str) -> str:
    """The chart as an SVG document."""
    xs = sorted({x for line in picture.lines for x, _ in line.points})
    top = _round_up(max(y for line in picture.lines for _, y in line.points))
    low = _round_down(min(y for line in picture.lines for _, y in line.points)) if picture.log_y else 0.0

    def at_x(x: float) -> float:
        first, last = (math.log(xs[0]), math.log(xs[-1])) if picture.log_x else (xs[0], xs[-1])
        share = ((math.log(x) if picture.log_x else x) - first) / (last - first or 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def at_y(y: float) -> float:
        share = (math.log(y) - math.log(low)) / (math.log(top) - math.log(low)) if picture.log_y else y / top
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff"/>',  # readable on a dark page too
        _text(LEFT, 24, picture.title, size=16, anchor="start"),
        _text(LEFT, 42, note, size=11, anchor="start", fill="#666666"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, picture.x),
        f'<g transform="rotate(-90 18 {HEIGHT / 2})">{_text(18, HEIGHT / 2, picture.y)}</g>',
    ]
    for y in _ticks(low, top, log=picture.log_y):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#e4e4e4"/>')
        parts.append(_text(LEFT - 8, at_y(y) + 4, _number(y), anchor="end"))
    parts += [_text(at_x(x), HEIGHT - BOTTOM + 18, _number(x)) for x in xs]
    ends = _apart([at_y(line.points[-1][1]) for line in picture.lines])
    for index, (line, end) in enumerate(zip(picture.lines, ends, strict=True)):
        colour = COLOURS[index % len(COLOURS)]
        places = [(at_x(x), at_y(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = f' stroke-dasharray="{DASHES[index % len(DASHES)]}"' if DASHES[index % len(DASHES)] else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
        parts.append(_text(places[-1][0] + 9, end + 4, line.name, anchor="start", fill=colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle", fill: str = "#222222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )


def _apart(ends: Sequence[float]) -> list[float]:
    """The heights of the names, moved down until none covers another, and up again where they would meet the axis."""
    order = sorted(range(len(ends)), key=lambda index: ends[index])
    result = list(ends)
    for above, below in itertools.pairwise(order):
        result[below] = max(result[below], result[above] + LABEL_GAP)
    floor = float(HEIGHT - BOTTOM)
    for index in reversed(order):
        result[index] = min(result[index], floor)
        floor = result[index] - LABEL_GAP
    return result


def _round_up(value: float) -> float:
    """The next of 1, 2, 3 ... 10, 20 ... that is not smaller; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


def _round_down(value: float) -> float:
    return 10.0 ** math.floor(math.log10(value))


def _ticks(low: float, top: float, *, log: bool) -> list[float]:
    if not log:
        return [top * index / TICKS for index in range(TICKS + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(top)) + 1)
    steps = (1, 2, 5) if math.log10(top / low) < FEW_DECADES else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= top * 1.001]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


# --- the figures ------------------------------------------------------------------------------------------------------


def by_partitions(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Runs a second."""
    lines = [
        Line(
            name=f"{runtimes} runtime{'s' if runtimes > 1 else ''}",
            points=[(row["partitions"], row["runs_per_s"]) for row in rows if row["runtimes"] == runtimes],
        )
        for runtimes in sorted({row["runtimes"] for row in rows})
    ]
    return Picture(title="A3x2 through the topic, 64 in flight", x="partitions", y="runs/s", lines=lines)


def by_in_flight(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Latencies, both axes logarithmic."""
    lines = [
        Line(name=f"{what} {share}", points=[(row["in_flight"], row[key][share]) for row in rows])
        for what, key in (("first text", "first_text_ms"), ("end", "end_ms"))
        for share in ("p50", "p99")
    ]
    return Picture(title="A3x2 over HTTP and SSE", x="runs in flight", y="latency, ms", lines=lines, log_y=True)


def by_streams(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """From the event to the client."""
    lines = [
        Line(name=share, points=[(row["streams"], row["event_to_client_ms"][share]) for row in rows])
        for share in ("p50", "p99")
    ]
    title = "Event to client, one api process, 50 turns/s"
    return Picture(title=title, x="open streams", y="event to client, ms", lines=lines, log_x=False)


def by_parked(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Memory of each of our processes."""
    lines = [
        Line(name=name, points=[(row["runs"], row["uss_bytes"][name] / 1e6) for row in rows])
        for name in ("runtime", "api", "projector")
    ]
    return Picture(title="Memory of runs that wait for a person", x="parked runs", y="MB (USS)", lines=lines)


def by_live_runs(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Take-overs."""
    return _take_overs(rows, "live", "Take-over of a partition against its live runs", "live runs of the partition")


def by_history(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Take-overs."""
    title = f"Take-over of a partition with {rows[0]['live']} live runs against its past"
    return _take_overs(rows, "events", title, "events of the partition")


def _take_overs(rows: Sequence[Mapping[str, Any]], key: str, title: str, x: str) -> Picture:
    """Medians of the kills; nothing is told finer than a millisecond, the resolution of the log's times."""
    lines = [
        Line(name=name, points=[(row[key], max(1.0, 1000 * middle(row["kills"], field))) for row in rows])
        for name, field in (
            ("kill to claim", "claimed_s"),
            ("claim to all runs", "recovered_s"),
            ("claim to first event", "serving_s"),
        )
    ]
    return Picture(title=title, x=x, y="time, ms", lines=lines, log_y=True)


def middle(kills: Sequence[Mapping[str, float]], field: str) -> float:
    """The median of one time of some kills, seconds."""
    return statistics.median(kill[field] for kill in kills)


def by_replay(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Events a second."""
    lines = [
        Line(name=name, points=[(row["events"], row[f"{key}_events_per_s"]) for row in rows])
        for name, key in (
            ("rebuild", "rebuild"),
            ("lost database", "lost"),
            ("replay, fold only", "fold"),
            ("replay, proven", "proof"),
        )
    ]
    return Picture(title="The log read again", x="events in the log", y="events/s", lines=lines)


PICTURES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], Picture]] = {
    "partitions": by_partitions,
    "in_flight": by_in_flight,
    "streams": by_streams,
    "parked": by_parked,
    "live": by_live_runs,
    "history": by_history,
    "replay": by_replay,
}


def draw(folder: Path) -> list[Path]:
    """Draws what there is; the files."""
    written = []
    for name, picture in PICTURES.items():
        source = folder / f"scaling-{name}.json"
        if source.exists():
            report = json.loads(source.read_text())
            machine = report["machine"]
            note = (
                f"{report['at'][:10]}, {machine['cores']} cores, Python {machine['python']}, "
                f"load {machine['load']} before, a million steps of a loop {machine['python_ms']} ms"
            )
            target = source.with_suffix(".svg")
            target.write_text(svg(picture(report["rows"]), note))
            written.append(target)
    return written


def main() -> int:
    """The exit code: 0 when there was something to draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    written = draw(folder)
    for path in written:
        print(path)
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
