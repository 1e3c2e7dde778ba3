"""Baselines: figures of earlier measurements in a JSON file, by what was measured.

    {"extractor": {"<sha-256 of the prompt>": {"<model, corpus and so on>": {"at": "...", "figures": {...}}}}}

A comparison is with the same prompt if the file has it, else with the newest one of the same model and corpus, and then
it says so: another prompt is another measurement, whose figures may be better or worse for that reason.

Before: live.py, judge.py. After: options.py.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec

from loomlog.services.cli.errors import UsageError
from loomlog.services.families.memory.commands.evaluation.options import read_json_file, write_json_file

TOLERANCE = 0.05
"""How far a share may fall below its baseline: answers of models vary."""

Figures = Mapping[str, Mapping[str, float | None]]
"""Shares from 0 to 1 by group and name; None: there is nothing to have a share of."""


class Entry(TypedDict):
    """Figures of one measurement and its time, RFC 3339."""

    at: str
    figures: dict[str, dict[str, float | None]]


Baselines = Mapping[str, Mapping[str, Mapping[str, Entry]]]


class Comparison(NamedTuple):
    """`warning`: what keeps the baseline from being one of the same thing; `losses`: figures below it, as sentences."""

    warning: str
    losses: list[str]


def read_baselines(path: Path) -> Baselines:
    """Return the baselines of a file, which may not be there yet. Raises UsageError."""
    if not path.exists():
        return {}
    try:
        return msgspec.convert(read_json_file(path, "--baseline"), dict[str, dict[str, dict[str, Entry]]])
    except msgspec.ValidationError as error:
        raise UsageError(f"--baseline: {path} has no figures of these commands: {error}.") from error


def compare(baselines: Baselines, kind: str, prompt_sha256: str, subject: str, figures: Figures) -> Comparison:
    """Return how figures stand against the baseline."""
    prompts = baselines.get(kind, {})
    entry, warning = prompts.get(prompt_sha256, {}).get(subject), ""
    if entry is None:
        others = [
            (entries[subject]["at"], sha256)
            for sha256, entries in prompts.items()
            if sha256 != prompt_sha256 and subject in entries
        ]
        if not others:
            return Comparison(f"THERE IS NO BASELINE of {subject} yet: --update-baseline writes it", [])
        _, sha256 = max(others)
        entry = prompts[sha256][subject]
        warning = (
            f"THE PROMPT IS ANOTHER ONE than that of the baseline: {prompt_sha256[:12]} instead of {sha256[:12]} of "
            f"{entry['at']}"
        )
    return Comparison(warning, _losses(entry["figures"], figures))


def updated(baselines: Baselines, kind: str, prompt_sha256: str, subject: str, figures: Figures) -> dict[str, Any]:
    """Return the baselines with these figures."""
    prompts = dict(baselines.get(kind, {}))
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    entry = Entry(at=at, figures={group: dict(shares) for group, shares in figures.items()})
    prompts[prompt_sha256] = {**prompts.get(prompt_sha256, {}), subject: entry}
    return {**baselines, kind: prompts}


def write_baselines(path: Path, baselines: Baselines) -> None:
    """Write the file. Raises UsageError."""
    write_json_file(path, baselines, "--baseline")


def _losses(before: Figures, now: Figures) -> list[str]:
    losses = []
    for group, shares in before.items():
        for name, share in shares.items():
            value = now.get(group, {}).get(name)
            if share is not None and value is not None and value < share - TOLERANCE:
                losses.append(f"{group}: {name} fell from {share:.2f} to {value:.2f}")
    return losses
