"""`loomlog memory-eval-judge`: how often a model judges pairs of facts as they are labelled, with the judge's prompt.

    loomlog memory-eval-judge --provider anthropic --model claude-haiku-4-5 --batch 8

A pair counts as judged right when both answers are: whether the source says the new fact, and how it stands to the
known one. Of an invented fact only the first counts.

Before: services/cli/main.py. After: model_calls.py, pairs.py, conclusion.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from loomlog.schemas.records import Value
from loomlog.services.cli.commands import run
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import one_line, pluralize
from loomlog.services.cli.terminal.output import ERROR, NAME, WARNING, console, print_table
from loomlog.services.families.memory.commands.evaluation.conclusion import (
    Baseline,
    Effort,
    Ending,
    MaxTokens,
    ModelName,
    Provider,
    Timeout,
    UpdateBaseline,
    share_text,
)
from loomlog.services.families.memory.commands.evaluation.extraction import parse_object
from loomlog.services.families.memory.commands.evaluation.model_calls import (
    ModelChoice,
    PromptedModel,
    ask_or_reason,
    gather_limited,
    open_prompted_model,
)
from loomlog.services.families.memory.commands.evaluation.options import Config, NoGate, Output, Seed, parse_duration
from loomlog.services.families.memory.commands.evaluation.pairs import (
    FAR,
    INVENTED,
    NEWER,
    OTHER,
    SAME,
    Pair,
    labelled_pairs,
)

JUDGE = "memory/judge"
KIND = "judge"
RELATIONS: Mapping[str, str] = {SAME: "same", NEWER: "replaces", OTHER: "different", FAR: "different"}
"""What the judge should answer; for an invented fact, whose relation does not matter, nothing."""
UNSUPPORTED, NO_VERDICT = "unsupported", "no verdict"
PAIRS_DEFAULT, PAIRS_MAX = 96, 252
BATCH_DEFAULT, BATCH_MAX = 8, 50
TOTAL = "all"


class Judged(Value, frozen=True, kw_only=True):
    """A pair and what the judge says: a relation, UNSUPPORTED or NO_VERDICT."""

    pair: Pair
    verdict: str

    @property
    def expected(self) -> str:
        return RELATIONS.get(self.pair.label, UNSUPPORTED)

    @property
    def is_right(self) -> bool:
        return self.verdict == self.expected


def memory_eval_judge(
    provider: Provider = "",
    model: ModelName = "",
    effort: Effort = "",
    config: Config = None,
    baseline: Baseline = None,
    update_baseline: UpdateBaseline = False,
    output: Output = None,
    timeout: Timeout = "5m",
    max_tokens: MaxTokens = 0,
    no_gate: NoGate = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=BATCH_MAX, help="Pairs of one call.")] = BATCH_DEFAULT,
    pairs: Annotated[int, typer.Option("--pairs", min=1, max=PAIRS_MAX, help="Pairs to judge.")] = PAIRS_DEFAULT,
    show_facts: Annotated[bool, typer.Option("--show-facts", help="Print the pairs that are judged wrong.")] = False,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Measure how well a model compares facts, with the prompt of the configuration.

    It is called, which may cost money. Exits 1 when a call failed or a figure fell below the baseline.
    """
    ending = Ending(baseline=baseline, updates=update_baseline, output=output, as_json=as_json, has_gate=not no_gate)
    seconds = parse_duration(timeout, "--timeout")
    choice = ModelChoice(provider=provider, model=model, effort=effort, max_tokens=max_tokens, timeout_s=seconds)
    chosen = choose_pairs(pairs, seed)
    batches = [chosen[start : start + batch] for start in range(0, len(chosen), batch)]
    prompted, answers = run(_ask(choice, config, batches))
    judged = [one for results, _ in answers for one in results]
    groups = agreement(judged)
    failures = [failure for _, failure in answers if failure]
    report = {
        **prompted.to_json(),
        "seed": seed,
        "batch": batch,
        "pairs": len(judged),
        "labels": groups,
        "verdicts": {
            label: dict(Counter(one.verdict for one in judged if one.pair.label == label))
            for label in groups
            if label != TOTAL
        },
        "problems": failures,
        "wrong": [
            {"label": one.pair.label, "verdict": one.verdict, "new": one.pair.new, "known": one.pair.known}
            for one in judged
            if not one.is_right
        ],
    }
    ending.conclude(
        report,
        prompted,
        kind=KIND,
        subject=f"{prompted.full_name} {prompted.effort or 'without effort'}, seed {seed}, "
        f"{pluralize(len(judged), 'pair')} in batches of {batch}",
        figures={label: {"agreement": group["agreement"]} for label, group in groups.items()},
        failures=len(failures),
        show=lambda: _print(judged, groups, failures, show_facts=show_facts),
    )


def choose_pairs(count: int, seed: int) -> list[Pair]:
    """Return so many pairs, of each label alike, in an order that is the same for the same seed."""
    random = Random(seed)
    groups = [[one for one in labelled_pairs(seed) if one.label == label] for label in (*RELATIONS, INVENTED)]
    for group in groups:
        random.shuffle(group)
    chosen: list[Pair] = []
    while len(chosen) < count and any(groups):
        chosen += [group.pop() for group in groups if group]
    chosen = chosen[:count]
    random.shuffle(chosen)
    return chosen


def question(pairs: Sequence[Pair]) -> str:
    """Return what the judge is asked, as the consolidator asks it."""
    asked = [{"n": n, "new": one.new, "quote": one.quote, "known": one.known} for n, one in enumerate(pairs)]
    return orjson.dumps({"pairs": asked}).decode()


def read_verdicts(text: str, pairs: Sequence[Pair]) -> list[Judged]:
    """Return what an answer says of each pair, as the consolidator reads it."""
    value = parse_object(text) or {}
    listed = value.get("verdicts")
    verdicts = {
        one["n"]: one
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and _is_count(one.get("n"))
    }
    return [Judged(pair=pair, verdict=_verdict(verdicts.get(n))) for n, pair in enumerate(pairs)]


def agreement(judged: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """Return pairs, right ones and their share, for each label and for all."""
    labels = [label for label in (*RELATIONS, INVENTED) if any(one.pair.label == label for one in judged)]
    groups = {label: _agreement(one for one in judged if one.pair.label == label) for label in labels}
    return groups | {TOTAL: _agreement(judged)}


async def _ask(
    choice: ModelChoice, config: Sequence[Path] | None, batches: Sequence[Sequence[Pair]]
) -> tuple[PromptedModel, list[tuple[list[Judged], str]]]:
    prompted = await open_prompted_model(JUDGE, choice, config)

    async def one(pairs: Sequence[Pair]) -> tuple[list[Judged], str]:
        text, failure = await ask_or_reason(prompted, question(pairs))
        return read_verdicts(text or "", pairs), failure

    try:
        return prompted, await gather_limited(batches, one)
    finally:
        await prompted.model.close()


def _verdict(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return NO_VERDICT
    if value.get("supported") is False:
        return UNSUPPORTED
    relation = str(value.get("relation"))
    return relation if relation in RELATIONS.values() else NO_VERDICT


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _agreement(judged: Iterable[Judged]) -> dict[str, Any]:
    kept = list(judged)
    right = sum(one.is_right for one in kept)
    return {"pairs": len(kept), "right": right, "agreement": round(right / len(kept), 4) if kept else None}


def _print(
    judged: Sequence[Judged], groups: Mapping[str, Mapping[str, Any]], failures: Sequence[str], *, show_facts: bool
) -> None:
    out = console()
    for failure in failures:
        out.print(Text(one_line(failure, 160), style=ERROR))
    for one in judged if show_facts else ():
        if not one.is_right:
            out.print(Text(f"{one.pair.label}, judged {one.verdict}:", style=WARNING))
            for name in ("quote", "new", "known"):
                out.print(f"  {name:<6} {one_line(getattr(one.pair, name), 110)}")
    rows = []
    for label, group in groups.items():
        wrong = Counter(one.verdict for one in judged if one.pair.label == label and not one.is_right)
        others = ", ".join(f"{verdict} {count}" for verdict, count in wrong.most_common())
        share = share_text(group["agreement"])
        rows.append((Text(label, style=NAME), str(group["pairs"]), str(group["right"]), share, others))
    print_table(out, ("label", "pairs", "right", "agreement", "judged instead"), rows, right_aligned=(1, 2, 3))
