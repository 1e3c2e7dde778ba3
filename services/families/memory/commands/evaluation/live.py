"""`loomlog memory-eval-live`: how well a model extracts the facts of chats with the extractor's prompt.

    loomlog memory-eval-live --provider anthropic --model claude-haiku-4-5
    loomlog memory-eval-live --baseline figures.json --update-baseline      keep the figures; without: compare

Generated chats are sent to the provider, one call for each. Precision and recall are measured for each thing that a
message asks of the extractor (generator.py ABILITIES, or the levels of level_chats.py).

Before: services/cli/main.py. After: model_calls.py, extraction.py, conclusion.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import orjson
import typer
from rich.text import Text

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_table
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
from loomlog.services.families.memory.commands.evaluation.corpus import Chat, Corpus
from loomlog.services.families.memory.commands.evaluation.extraction import (
    AbilityFigures,
    ChatResult,
    Extraction,
    compare,
    read_answer,
    summarize,
    total,
)
from loomlog.services.families.memory.commands.evaluation.generator import generate
from loomlog.services.families.memory.commands.evaluation.level_chats import generate_levels
from loomlog.services.families.memory.commands.evaluation.model_calls import (
    ModelChoice,
    PromptedModel,
    ask_or_reason,
    gather_limited,
    open_prompted_model,
)
from loomlog.services.families.memory.commands.evaluation.options import Config, NoGate, Output, Seed, parse_duration

EXTRACTOR = "memory/extractor"
KIND = "extractor"
DEFAULT, HIERARCHY = "default", "hierarchy"
CHATS_DEFAULT, CHATS_MAX = 24, 148
TOTAL = "all"


class ChatAnswer(NamedTuple):
    """What was extracted of a chat, and why its call failed."""

    result: ChatResult
    failure: str


def memory_eval_live(
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
    ontology_terms: Annotated[
        str, typer.Option("--ontology-terms", metavar="TERMS", help="Types of things, separated by commas.")
    ] = "",
    corpus: Annotated[str, typer.Option("--corpus", metavar="NAME", help="default or hierarchy.")] = DEFAULT,
    show_facts: Annotated[bool, typer.Option("--show-facts", help="Print what was extracted and missed.")] = False,
    chats: Annotated[int, typer.Option("--chats", min=1, max=CHATS_MAX, help="Chats, a call each.")] = CHATS_DEFAULT,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Measure how well a model extracts the facts of chats, with the prompt of the configuration.

    It is called, which may cost money. Exits 1 when a call failed or a figure fell below the baseline.
    """
    if corpus not in (DEFAULT, HIERARCHY):
        raise UsageError(f"--corpus is {corpus[:60]!r}; expected {DEFAULT} or {HIERARCHY}.")
    ending = Ending(baseline=baseline, updates=update_baseline, output=output, as_json=as_json, has_gate=not no_gate)
    seconds = parse_duration(timeout, "--timeout")
    choice = ModelChoice(provider=provider, model=model, effort=effort, max_tokens=max_tokens, timeout_s=seconds)
    terms = [term.strip() for term in ontology_terms.split(",") if term.strip()]
    generated = generate(seed) if corpus == DEFAULT else generate_levels(seed)
    chosen = choose_chats(generated, chats, seed)
    prompted, answers = run(_ask(choice, config, terms, generated, chosen))
    groups = summarize(answer.result for answer in answers)
    groups[TOTAL] = total(groups.values())
    named = f", terms {', '.join(terms)}" if terms else ""
    ending.conclude(
        _report(prompted, corpus, seed, terms, answers, groups),
        prompted,
        kind=KIND,
        subject=f"{prompted.full_name} {prompted.effort or 'without effort'}, {corpus}, seed {seed}, "
        f"{pluralize(len(chosen), 'chat')}{named}",
        figures={name: {"precision": one.precision, "recall": one.recall} for name, one in groups.items()},
        failures=sum(bool(answer.failure) for answer in answers),
        show=lambda: _print(answers, groups, show_facts=show_facts),
    )


def choose_chats(corpus: Corpus, count: int, seed: int) -> tuple[Chat, ...]:
    """Return so many chats that have facts, the same for the same seed."""
    with_facts = {fact.chat for fact in corpus.facts}
    chats = [chat for chat in corpus.chats if chat.id in with_facts]
    chosen = {chat.id for chat in Random(seed).sample(chats, min(count, len(chats)))}
    return tuple(chat for chat in chats if chat.id in chosen)


def question(chat: Chat) -> str:
    """Return what the extractor is asked, as the consolidator asks it."""
    at = format_rfc3339(chat.at_ms)
    messages = [
        {"n": number, "role": message.role, "at": at, "text": message.text}
        for number, message in enumerate(chat.messages)
    ]
    return orjson.dumps({"messages": messages}).decode()


async def _ask(
    choice: ModelChoice, config: Sequence[Path] | None, terms: Sequence[str], corpus: Corpus, chats: Sequence[Chat]
) -> tuple[PromptedModel, list[ChatAnswer]]:
    prompted = await open_prompted_model(EXTRACTOR, choice, config, terms=terms)

    async def one(chat: Chat) -> ChatAnswer:
        text, failure = await ask_or_reason(prompted, question(chat))
        extraction = Extraction(problem=failure) if text is None else read_answer(text, chat)
        facts = [fact for fact in corpus.facts if fact.chat == chat.id]
        return ChatAnswer(compare(chat, facts, extraction), failure)

    try:
        return prompted, await gather_limited(chats, one)
    finally:
        await prompted.model.close()


def _report(
    prompted: PromptedModel,
    corpus: str,
    seed: int,
    terms: Sequence[str],
    answers: Sequence[ChatAnswer],
    groups: Mapping[str, AbilityFigures],
) -> dict[str, Any]:
    matches = [match for answer in answers for match in answer.result.matches]
    right = [match for match in matches if match.fact is not None]
    return {
        **prompted.to_json(),
        "corpus": corpus,
        "seed": seed,
        "ontology_terms": list(terms),
        "chats": len(answers),
        "abilities": {name: one.to_json() for name, one in groups.items()},
        "right_class": _share(
            sum(one.fact is not None and one.fact.fact_class == one.extracted.fact_class for one in right), right
        ),
        "exact_quotes": _share(sum(one.extracted.has_quote for one in matches), matches),
        "invalid": sum(answer.result.extraction.invalid for answer in answers),
        "problems": [
            {"chat": answer.result.chat.id, "problem": answer.result.extraction.problem}
            for answer in answers
            if answer.result.extraction.problem
        ],
        "facts": [
            {
                "chat": answer.result.chat.id,
                "extracted": [
                    {
                        "text": match.extracted.text,
                        "ability": match.ability,
                        "fact": match.fact.id if match.fact else None,
                    }
                    for match in answer.result.matches
                ],
                "missed": [fact.text for fact in answer.result.missed],
            }
            for answer in answers
        ],
    }


def _share(count: int, of: Sequence[object]) -> float | None:
    return round(count / len(of), 4) if of else None


def _print(answers: Sequence[ChatAnswer], groups: Mapping[str, AbilityFigures], *, show_facts: bool) -> None:
    out = console()
    for answer in answers:
        result = answer.result
        if result.extraction.problem:
            out.print(Text(f"{result.chat.id}: {one_line(result.extraction.problem, 160)}", style=ERROR))
        if not show_facts:
            continue
        out.print(Text(f"{result.chat.id}", style=NAME))
        for match in result.matches:
            style = SUCCESS if match.fact is not None else WARNING if match.ability else DIM
            label = "right" if match.fact is not None else f"wrong, {match.ability}" if match.ability else "not counted"
            out.print(Text(f"  {label:<16} {one_line(match.extracted.text, 100)}", style=style))
        for fact in result.missed:
            out.print(Text(f"  {'missed':<16} {one_line(fact.text, 100)}", style=ERROR))
    rows = [
        (
            Text(name, style=NAME),
            str(one.facts),
            str(one.extracted),
            str(one.right),
            share_text(one.precision),
            share_text(one.recall),
        )
        for name, one in groups.items()
    ]
    columns = ("ability", "facts", "extracted", "right", "precision", "recall")
    print_table(out, columns, rows, right_aligned=range(1, len(columns)))
