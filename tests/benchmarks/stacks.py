"""Sampled stacks: read from py-spy's raw format, told apart by area, drawn as a flame graph. All of it is pure.

A stack is a tuple of frames `function (file)` from the outermost to the leaf. A sample belongs to the area of the first
frame, from the leaf upwards, that the table names; so what the standard library or a socket does for us is counted with
who asked for it, and what nobody asked for is the event loop's.

Before: flame.py. After: docs/figures/profile.json, flame-*.svg.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Stack = tuple[str, ...]

LOOP = "event loop, sockets, tasks"
"""What no area names: uvloop or asyncio themselves, with the kernel's work of their sockets."""

RECORDS = "encoding, decoding and hashing of records"
AREAS: Sequence[tuple[str, str]] = (
    # The broker's client.
    ("aiokafka/producer/", "broker's client: producing"),
    ("aiokafka/record/", "broker's client: batches as bytes"),
    ("aiokafka/consumer/", "broker's client: fetching"),
    ("connectors/kafka/appender.py", "broker's client: producing"),
    ("connectors/kafka/tail.py", "broker's client: fetching"),
    ("connectors/kafka/", "broker's client: the group and the rest"),
    # The language.
    ("schemas/", RECORDS),
    ("fastavro/", RECORDS),
    # The core.
    ("services/core/run/evolve", "folding"),
    ("services/core/run/react", "which call is due"),
    ("services/core/", "deciding"),
    # The generic loop.
    ("services/stream/effect_calls.py", "tasks and timers of calls"),
    ("services/stream/partition/fold.py", "folding"),
    ("services/stream/partition/recovered_state.py", "folding"),
    ("services/stream/partition/partition.py", "stamping events and waiting for the wire"),
    ("services/stream/flusher.py", "group commit"),
    ("services/stream/", "the owner's loop"),
    # The runtime.
    ("connectors/models/", "models"),
    ("services/runtime/models/model_calls.py", "models"),
    ("services/runtime/models/previews.py", "models: previews of text"),
    ("services/runtime/models/partial_output.py", "models: previews of text"),
    ("connectors/tools/", "tools"),
    ("services/runtime/tool_", "tools"),
    ("services/runtime/tools/toolset.py", "tools"),
    ("services/runtime/content/redaction.py", "secrets looked for"),
    ("connectors/crypto/secret_patterns.py", "secrets looked for"),
    ("services/runtime/telemetry/metrics.py", "metrics and tracing"),
    ("services/runtime/telemetry/tracing.py", "metrics and tracing"),
    ("services/runtime/telemetry/otel.py", "metrics and tracing"),
    ("opentelemetry/", "metrics and tracing"),
    ("prometheus_client/", "metrics and tracing"),
    ("services/api/metrics.py", "metrics and tracing"),
    ("services/runtime/run/command_handler.py", "the command handler: starts, and facts only the owner has"),
    ("services/runtime/run/start_handler.py", "the command handler: starts, and facts only the owner has"),
    ("services/runtime/admission/partition_gate.py", "the command handler: starts, and facts only the owner has"),
    ("services/runtime/telemetry/run_summaries.py", "figures for insights"),
    # The api.
    ("services/application/streaming/event_hub.py", "reading the log for streams"),
    ("services/application/streaming/recent_events.py", "reading the log for streams"),
    ("services/application/streaming/subscription.py", "reading the log for streams"),
    ("services/application/streaming/merge.py", "SSE: which events"),
    ("services/application/streaming/run_stream.py", "SSE: which events"),
    ("services/application/command_publisher.py", "commands on their way to the log"),
    ("projections/frame", "SSE: frames of events"),
    ("services/api/event_stream.py", "SSE: writing"),
    ("services/commands/", "command layer"),
    ("psycopg", "Postgres"),
    ("connectors/storage/postgres.py", "Postgres"),
    ("projections/", "Postgres"),
)
"""(what a frame's file begins with, its area), the first that fits."""
WIDE: Sequence[tuple[str, str]] = (
    ("services/runtime/main.py", LOOP),
    ("services/api/main.py", LOOP),
    ("uvicorn/server.py", LOOP),
    ("aiokafka/", "broker's client: connections and answers"),
    ("uvicorn/", "http: the wire"),
    ("httptools/", "http: the wire"),
    ("services/api/", "http: routes"),
    ("fastapi/", "http: routes"),
    ("starlette/", "http: routes"),
    ("pydantic/", "http: routes"),
    ("services/runtime/", "the runtime around it"),
)
"""Looked at when no frame of a stack is in AREAS: what works for somebody else while somebody else is there."""

PACKAGE = "loomlog/"
"""What py-spy has before our files when it has shortened their paths itself."""
_FRAME = re.compile(r"^(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
_ABOVE_PACKAGES = re.compile(r"^/.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_ANY_FOLDERS = re.compile(r"^/(?:[^/]*/)*(?=[^/]+/[^/]+$)")


def parse(raw: str, *, root: str = "") -> Counter[Stack]:
    """py-spy's raw format: `outermost;...;leaf count` a line. Paths lose what is of this machine; `root` is ours."""
    counter: Counter[Stack] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack:
            counter[tuple(short(frame, root=root) for frame in stack.split(";"))] += int(count)
    return counter


def short(frame: str, *, root: str = "") -> str:
    """`function (file)` without the line, and with the file as seen from its package."""
    matched = _FRAME.match(frame)
    if matched is None:
        return frame
    file = matched["file"]
    if root and file.startswith(root):
        file = file[len(root) :].lstrip("/")
    file = _ANY_FOLDERS.sub("", _ABOVE_PACKAGES.sub("", file)).removeprefix(PACKAGE)
    return f"{matched['function']} ({file})"


def area_of(stack: Stack) -> str:
    """The area of a sample."""
    for areas in (AREAS, WIDE):
        for frame in reversed(stack):
            name = area_of_frame(frame, areas)
            if name is not None:
                return name
    return LOOP


def area_of_frame(frame: str, areas: Sequence[tuple[str, str]]) -> str | None:
    """The area that names the frame's file; None when none does."""
    matched = _FRAME.match(frame)
    if matched is None:
        return None
    return next((name for prefix, name in areas if matched["file"].startswith(prefix)), None)


def shares(stacks: Mapping[Stack, int]) -> dict[str, float]:
    """Percent of the samples by area, the largest first."""
    counts: Counter[str] = Counter()
    for stack, count in stacks.items():
        counts[area_of(stack)] += count
    return _percent(counts)


def leaves(stacks: Mapping[Stack, int], most: int) -> dict[str, float]:
    """Percent of the samples by leaf function, the `most` largest."""
    counts: Counter[str] = Counter()
    for stack, count in stacks.items():
        counts[stack[-1]] += count
    return dict(list(_percent(counts).items())[:most])


def _percent(counts: Counter[str]) -> dict[str, float]:
    total = counts.total() or 1
    return {name: round(100 * count / total, 1) for name, count in counts.most_common()}


# --- the graph --------------------------------------------------------------------------------------------------------

WIDTH, ROW, TOP, SIDE = 1200, 17, 64, 10
CHARACTER = 6.2
"""Pixels of a character at FONT."""
FONT = 11
LEAST_SHARE = 0.002
"""Narrower boxes are left out."""
LEGEND_COLUMNS, LEGEND_MOST = 3, 18
COLOURS = (
    "#f4a582", "#92c5de", "#b8e186", "#fddbc7", "#c2a5cf", "#fee08b", "#80cdc1", "#e9a3c9", "#d9d9d9",
    "#bf9b7a", "#a6bddb", "#ccebc5", "#ffed6f", "#fbb4ae", "#b3cde3", "#decbe4", "#e5d8bd", "#cccccc",
)  # fmt: skip
PLAIN = "#f2f2f2"
"""A box whose area has too few samples for a colour."""


@dataclass(slots=True)
class Box:
    """A frame in its place, and what it called."""

    count: int = 0
    inner: dict[str, "Box"] = field(default_factory=dict)


def tree(stacks: Mapping[Stack, int]) -> Box:
    """All stacks; of the outermost frames that all samples share only the last is kept."""
    root = Box()
    for stack, count in stacks.items():
        box = root
        box.count += count
        for frame in stack:
            box = box.inner.setdefault(frame, Box())
            box.count += count
    while len(root.inner) == 1:
        (only,) = root.inner.values()
        if [inner.count for inner in only.inner.values()] != [root.count]:
            break
        root = only
    return root


def flame_svg(stacks: Mapping[Stack, int], title: str, note: str) -> str:
    """The flame graph: the outermost frames at the bottom, width is share of samples, colour is area.

    Boxes of one frame beside each other are in alphabetical order, so left to right means nothing.
    """
    root = tree(stacks)
    percent = shares(stacks)
    colours = dict(zip(list(percent)[:LEGEND_MOST], COLOURS, strict=False))
    boxes: list[tuple[int, float, float, str, Box, str]] = []

    def place(box: Box, depth: int, left: float, below: Stack) -> None:
        for frame, inner in sorted(box.inner.items()):
            share = inner.count / root.count
            if share >= LEAST_SHARE:
                boxes.append((depth, left, share, frame, inner, area_of((*below, frame))))
                place(inner, depth + 1, left, (*below, frame))
            left += share

    place(root, 0, 0.0, ())
    rows = 1 + max((depth for depth, *_ in boxes), default=0)
    legend_rows = -(-len(colours) // LEGEND_COLUMNS)
    floor = TOP + rows * ROW
    height = floor + 24 + legend_rows * ROW + 8
    scale = WIDTH - 2 * SIDE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="{FONT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{SIDE}" y="24" font-size="16" fill="#222222">{escape(title)}</text>',
        f'<text x="{SIDE}" y="44" fill="#555555">{escape(note)}</text>',
    ]
    for depth, left, share, frame, box, name in boxes:
        x, y, width = SIDE + left * scale, floor - (depth + 1) * ROW, share * scale
        tip = f"{frame}: {100 * box.count / root.count:.1f} %, {name}"
        parts.append(
            f'<g><title>{escape(tip)}</title><rect x="{x:.1f}" y="{y}" width="{max(0.4, width - 0.5):.1f}" '
            f'height="{ROW - 1}" fill="{colours.get(name, PLAIN)}"/>{_label(frame, x, y, width)}</g>'
        )
    for number, (name, colour) in enumerate(colours.items()):
        x = SIDE + (number % LEGEND_COLUMNS) * (scale / LEGEND_COLUMNS)
        y = floor + 24 + (number // LEGEND_COLUMNS) * ROW
        parts.append(f'<rect x="{x:.1f}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18:.1f}" y="{y}" fill="#222222">{percent[name]:.1f} % {escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(frame: str, x: float, y: float, width: float) -> str:
    """As much of the function's name as fits, with its file where there is room."""
    room = int((width - 6) / CHARACTER)
    function = frame.partition(" (")[0]
    text = frame if len(frame) <= room else function if len(function) <= room else f"{function[: room - 1]}…"
    return "" if room < 3 else f'<text x="{x + 3:.1f}" y="{y + 12}" fill="#111111">{escape(text)}</text>'
