"""Numbers, durations and texts in sentences for people: short, on one line, always the same way.

Values are rounded; programs get the exact ones as JSON.

Before: services/application/health/components.py, services/cli/terminal/formatting.py. After: a sentence.
"""

MINUTE_S, HOUR_S = 60, 3600


def duration(seconds: float) -> str:
    """Format a duration: `45 ms`, `3.2 s`, `4 min 05 s`, `2 h 03 min`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    if seconds < HOUR_S:
        return f"{int(seconds // MINUTE_S)} min {int(seconds % MINUTE_S):02d} s"
    return f"{int(seconds // HOUR_S)} h {int(seconds % HOUR_S // MINUTE_S):02d} min"


def number(count: int) -> str:
    """Format a number: `950`, `1,234`, `45.2k`, `3.1M`."""
    if count < 10_000:
        return f"{count:,}"
    if count < 1_000_000:
        return f"{count / 1000:.1f}k"
    return f"{count / 1_000_000:.1f}M"


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: `1 file`, `3 files`."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def one_line(text: str, characters: int) -> str:
    """Return the text on one line without control characters, cut with an ellipsis."""
    # Cut before it is processed: a tool's answer may be a megabyte.
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[: characters * 4]).split())
    return flat if len(flat) <= characters and len(text) <= characters * 4 else flat[: characters - 1] + "…"
