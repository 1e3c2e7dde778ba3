"""`loomlog memory-eval`: how well searches find facts again. No service has to run, and no provider is called.

    loomlog memory-eval                                    generated chats; exit 1 when hybrid is below a half
    loomlog memory-eval --rank-config rank.json            with other weights: {"rank": {"recency_weight": 0.2}}
    loomlog memory-eval --dataset facts.jsonl              facts and questions of your own (dataset.py has the format)
    loomlog memory-eval --embedder auto                    with the embedder of the configuration, which is called

Before: services/cli/main.py. After: ranking.py, figures.py; generator.py or dataset.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.embedders.embedder import Embedder
from loomlog.connectors.embedders.errors import EmbedderFailed
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, UsageError
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, console, print_json, print_table
from loomlog.services.core.operation_input import parse_operation
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.api import RECALL, SEARCH
from loomlog.services.families.memory.commands.evaluation.corpus import Corpus
from loomlog.services.families.memory.commands.evaluation.dataset import read_corpus
from loomlog.services.families.memory.commands.evaluation.figures import (
    Figures,
    Outcome,
    best_threshold,
    by_type,
    hybrid_losses,
    outcome,
    summarize,
)
from loomlog.services.families.memory.commands.evaluation.generator import generate
from loomlog.services.families.memory.commands.evaluation.options import (
    AUTO,
    STUB,
    Config,
    EmbedDim,
    NoGate,
    Output,
    Seed,
    embedder_error,
    open_embedder,
    read_json_file,
    write_json_file,
)
from loomlog.services.families.memory.commands.evaluation.ranking import (
    HYBRID,
    MODES,
    WHOLE_CHAT,
    DocumentIndex,
    chat_documents,
    fact_documents,
    of_chats,
    queries,
)
from loomlog.services.families.memory.commands.evaluation.stand_in import DIMENSIONS, StandInEmbedder
from loomlog.services.families.memory.search_request import SearchRequest, search_request

STAND_IN = "stand-in"
EMBEDDERS = (STAND_IN, STUB, AUTO)
RANK_FIELDS = ("rank", "dedup", "top_k", "threshold")
COLUMNS = ("recall@5", "MRR", "wrong", "outdated", "unanswered", "characters")


def memory_eval(
    dataset: Annotated[
        Path | None, typer.Option("--dataset", metavar="FILE", help="JSON lines of facts, questions and chats.")
    ] = None,
    rank_config: Annotated[
        Path | None,
        typer.Option("--rank-config", metavar="FILE", help="JSON with rank, dedup and top_k of search, and threshold."),
    ] = None,
    output: Output = None,
    embed_dim: EmbedDim = DIMENSIONS,
    embedder: Annotated[
        str, typer.Option("--embedder", metavar="NAME", help="stand-in, stub, or auto: that of the configuration.")
    ] = STAND_IN,
    config: Config = None,
    seed: Seed = 1,
    no_gate: NoGate = False,
    as_json: Json = False,
) -> None:
    """Measure how well searches of memory find facts again, offline. Exits 1 when hybrid is below lexical or vector."""
    if embedder not in EMBEDDERS:
        raise UsageError(f"--embedder is {embedder[:60]!r}; expected one of {', '.join(EMBEDDERS)}.")
    request, threshold = _rank_options({} if rank_config is None else read_json_file(rank_config, "--rank-config"))
    corpus = generate(seed) if dataset is None else read_corpus(dataset)
    chosen = StandInEmbedder(embed_dim) if embedder == STAND_IN else open_embedder(embedder, config, embed_dim)
    outcomes = run(_measure(corpus, chosen, request, threshold))
    figures = {mode: summarize(results) for mode, results in outcomes.items()}
    losses = hybrid_losses(figures)
    report = {
        "dataset": str(dataset) if dataset is not None else f"generated, seed {seed}",
        "embedder": {"provider": chosen.provider, "model": chosen.model, "dimensions": chosen.dimension},
        "facts": len(corpus.facts),
        "chats": len(corpus.chats),
        "threshold": threshold,
        "modes": {
            mode: one.to_json()
            | {"by_type": {kind: of_type.to_json() for kind, of_type in by_type(outcomes[mode]).items()}}
            for mode, one in figures.items()
        },
        "best_threshold": _best_threshold(outcomes[HYBRID]) if threshold <= 0 else None,
        "losses": losses,
    }
    if output is not None:
        write_json_file(output, report, "--output")
    if as_json:
        print_json(report)
    else:
        _print(report, figures, outcomes)
    if losses and not no_gate:
        raise typer.Exit(FAILED)


async def _measure(
    corpus: Corpus, embedder: Embedder, request: SearchRequest, threshold: float
) -> dict[str, list[Outcome]]:
    """Return what each mode makes of each question; whole chats take part when the corpus has chats."""
    try:
        facts = DocumentIndex(await fact_documents(corpus.facts, embedder))
        chats = DocumentIndex(await chat_documents(corpus.chats, embedder))
        asked = await queries(corpus.questions, embedder)
    except EmbedderFailed as failed:
        raise embedder_error(embedder, failed) from failed
    finally:
        await embedder.close()
    outcomes: dict[str, list[Outcome]] = {}
    for mode in MODES:
        if mode != WHOLE_CHAT:
            outcomes[mode] = [outcome(one.question, facts.rank(one, mode, request), threshold) for one in asked]
        elif corpus.chats:
            outcomes[mode] = [
                outcome(of_chats(one.question, corpus), chats.rank(one, mode, request), threshold) for one in asked
            ]
    return outcomes


def _rank_options(config: Any) -> tuple[SearchRequest, float]:
    """Return the search and the threshold of --rank-config. Raises UsageError."""
    if not isinstance(config, Mapping) or not config.keys() <= {*RANK_FIELDS}:
        raise UsageError(f"--rank-config: expected a JSON object with {', '.join(RANK_FIELDS)}.")
    searching = {name: config[name] for name in ("rank", "dedup", "top_k") if name in config}
    recalling = {"threshold": config["threshold"]} if "threshold" in config else {}
    try:
        asked = parse_operation(SEARCH, {"query": "-", **searching})
        return search_request(asked), parse_operation(RECALL, {"query": "-", **recalling}).threshold
    except Refused as refused:
        raise UsageError(f"--rank-config: {refused}.") from refused


def _best_threshold(outcomes: Sequence[Outcome]) -> dict[str, Any] | None:
    best = best_threshold(outcomes)
    return None if best is None else {"threshold": round(best[0], 3), "wrong": best[1], "questions": len(outcomes)}


def _print(report: Mapping[str, Any], figures: Mapping[str, Figures], outcomes: Mapping[str, list[Outcome]]) -> None:
    out = console()
    of = report["embedder"]
    questions = pluralize(next(iter(figures.values())).questions, "question")
    text = (
        f"{report['dataset']}: {pluralize(report['facts'], 'fact')}, {pluralize(report['chats'], 'chat')}, "
        f"{questions}; vectors of {of['provider']}/{of['model']} ({of['dimensions']})"
    )
    out.print(Text(text, style=DIM))
    right = range(1, len(COLUMNS) + 1)
    print_table(out, ("mode", *COLUMNS), [_row(mode, one) for mode, one in figures.items()], right_aligned=right)
    types = {mode: by_type(results) for mode, results in outcomes.items()}
    rows = [
        (f"{kind} ({one.questions})", *_row(mode, types[mode][kind]))
        for kind, one in next(iter(types.values())).items()
        for mode in outcomes
    ]
    out.print()
    print_table(out, ("type", "mode", *COLUMNS), rows, right_aligned=[column + 1 for column in right])
    out.print()
    if best := report["best_threshold"]:
        out.print(
            f"With the threshold {best['threshold']:g} hybrid goes wrong least: {best['wrong']} of "
            f"{best['questions']} questions."
        )
    for loss in report["losses"]:
        out.print(Text(f"{loss}.", style=ERROR))


def _row(mode: str, figures: Figures) -> tuple[str | Text, ...]:
    return (
        Text(mode, style=NAME),
        *("-" if value is None else f"{value:.3f}" for value in (figures.recall, figures.mrr)),
        str(figures.wrong),
        str(figures.outdated),
        str(figures.unanswered),
        f"{figures.characters:.0f}",
    )
