"""`loomlog memory-calibrate`: from which similarity on facts are related or one, for the embedder of the configuration.

    loomlog memory-calibrate --config loomlog.yaml            what memory.consolidation should have
    loomlog memory-calibrate --config loomlog.yaml --check    exit 1 when what it has does not separate
    loomlog memory-calibrate --dataset pairs.jsonl            pairs of your own: {"a": "...", "b": "...", "label": ...}

Labels are same, newer, other and far (pairs.py).

The texts are embedded by the embedder, which may cost money; the built-in ones have some 10,000 words.

Before: services/cli/main.py. After: bands.py, pairs.py; connectors/embedders.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.embedders.embedder import Embedder
from loomlog.connectors.embedders.errors import EmbedderFailed
from loomlog.connectors.embedders.stub import STUB_DIMENSIONS
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, UsageError
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, console, print_json, print_table
from loomlog.services.families.memory.commands.evaluation.bands import (
    BANDS,
    ONE,
    RELATED,
    UNRELATED,
    Distribution,
    Effects,
    distribution,
    effects,
    problems,
    suggest,
)
from loomlog.services.families.memory.commands.evaluation.options import (
    AUTO,
    STUB,
    Config,
    EmbedDim,
    Output,
    Seed,
    embedder_error,
    load_files,
    open_embedder,
    write_json_file,
)
from loomlog.services.families.memory.commands.evaluation.pairs import Pair, cluster_pairs, labelled_pairs, read_pairs
from loomlog.services.families.memory.commands.evaluation.ranking import cosine

BUILTIN, CLUSTER = "builtin", "cluster"


def memory_calibrate(
    config: Config = None,
    dataset: Annotated[
        str, typer.Option("--dataset", metavar="NAME|FILE", help="builtin, cluster, or JSON lines of pairs.")
    ] = BUILTIN,
    embedder: Annotated[
        str, typer.Option("--embedder", metavar="NAME", help="auto: that of the configuration; or stub.")
    ] = AUTO,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when the configured ones do not separate.")] = False,
    output: Output = None,
    embed_dim: EmbedDim = STUB_DIMENSIONS,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Find the similarities from which facts are related or one, for an embedder.

    With --check it exits 1 when those of the configuration do not separate.
    """
    if embedder not in (AUTO, STUB):
        raise UsageError(f"--embedder is {embedder[:60]!r}; expected {AUTO} or {STUB}.")
    pairs = _pairs(dataset, seed)
    configured = load_files(config).configuration.memory.consolidation
    chosen = open_embedder(embedder, config, embed_dim)
    bands = run(_similarities(pairs, chosen))
    merge, related = suggest(bands)
    suggested = effects(bands, merge, related)
    present = effects(bands, configured.merge_threshold, configured.related_threshold)
    wrong = problems(present)
    distributions = {name: distribution(values) for name, values in bands.items()}
    report = {
        "dataset": dataset,
        "embedder": {"provider": chosen.provider, "model": chosen.model, "dimensions": chosen.dimension},
        "bands": {name: one.to_json() for name, one in distributions.items()},
        "suggested": suggested.to_json() | {"problems": problems(suggested)},
        "configured": present.to_json() | {"problems": wrong},
    }
    if output is not None:
        write_json_file(output, report, "--output")
    if as_json:
        print_json(report)
    else:
        _print(report, distributions, {"configured": present, "suggested": suggested})
    if check and wrong:
        raise typer.Exit(FAILED)


def _pairs(dataset: str, seed: int) -> list[Pair]:
    if dataset == BUILTIN:
        return [one for one in labelled_pairs(seed) if one.label in BANDS]
    return cluster_pairs(seed) if dataset == CLUSTER else read_pairs(Path(dataset))


async def _similarities(pairs: Sequence[Pair], embedder: Embedder) -> dict[str, list[float]]:
    """Return the cosines of the pairs of each band. Raises UsageError, CliError."""
    bands: dict[str, list[float]] = {ONE: [], RELATED: [], UNRELATED: []}
    if missing := [band for band in bands if not any(BANDS[one.label] == band for one in pairs)]:
        raise UsageError(f"--dataset: there is no pair that is {missing[0]}: each band needs one.")
    texts = list(dict.fromkeys(text for one in pairs for text in (one.new, one.known)))
    try:
        vectors = dict(zip(texts, await embedder.embed(texts), strict=True))
    except EmbedderFailed as failed:
        raise embedder_error(embedder, failed) from failed
    except ValueError as error:
        raise CliError(f"{embedder.provider}/{embedder.model} made another number of vectors than of texts.") from error
    finally:
        await embedder.close()
    for one in pairs:
        bands[BANDS[one.label]].append(cosine(vectors[one.new], vectors[one.known]))
    return bands


def _print(report: Mapping[str, Any], bands: Mapping[str, Distribution], thresholds: Mapping[str, Effects]) -> None:
    out = console()
    of = report["embedder"]
    out.print(Text(f"{report['dataset']}: vectors of {of['provider']}/{of['model']} ({of['dimensions']})", style=DIM))
    rows: list[tuple[str | Text, ...]] = [
        (Text(name, style=NAME), str(one.pairs), *(f"{value:.3f}" for value in (one.least, *one.percentiles, one.most)))
        for name, one in bands.items()
    ]
    print_table(out, ("pairs that are", "pairs", "min", "p5", "p50", "p95", "max"), rows, right_aligned=range(1, 7))
    out.print()
    shares: list[tuple[str | Text, ...]] = [
        (
            Text(name, style=NAME),
            f"{one.merge:.2f}",
            f"{one.related:.2f}",
            *(f"{share:.0%}" for share in (one.merged, one.wrongly_merged, one.compared, one.compared_in_vain)),
        )
        for name, one in thresholds.items()
    ]
    columns = ("thresholds", "merge", "related", "merged", "wrongly merged", "compared", "compared in vain")
    print_table(out, columns, shares, right_aligned=range(1, 7))
    out.print()
    suggested = thresholds["suggested"]
    text = f"merge_threshold: {suggested.merge:g}, related_threshold: {suggested.related:g}"
    out.print(Text(f"memory: {{ consolidation: {{ {text} }} }}", style=SUCCESS))
    for problem in report["configured"]["problems"]:
        out.print(Text(f"configured: {problem}.", style=ERROR))
    for problem in report["suggested"]["problems"]:
        out.print(Text(f"suggested: {problem}; this embedder does not tell these facts apart.", style=ERROR))
