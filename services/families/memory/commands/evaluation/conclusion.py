"""The end of a measurement of a model: baseline, report, exit code; and the options of both commands.

Before: live.py, judge.py. After: baseline.py, model_calls.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.errors import FAILED, UsageError
from loomlog.services.cli.terminal.formatting import money, number, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, SUCCESS, WARNING, console, error_console, print_json
from loomlog.services.families.memory.commands.evaluation.baseline import (
    Figures,
    compare,
    read_baselines,
    updated,
    write_baselines,
)
from loomlog.services.families.memory.commands.evaluation.model_calls import PromptedModel
from loomlog.services.families.memory.commands.evaluation.options import write_json_file

MAX_TOKENS = 1_000_000
Provider = Annotated[str, typer.Option("--provider", metavar="NAME", help="Provider; with --model.")]
ModelName = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Model, or an alias; default: the one the agent would use.")
]
Effort = Annotated[str, typer.Option("--effort", metavar="LEVEL", help="low, medium or high.")]
Baseline = Annotated[
    Path | None, typer.Option("--baseline", metavar="FILE", help="File with the figures of earlier measurements.")
]
UpdateBaseline = Annotated[bool, typer.Option("--update-baseline", help="Write these figures to --baseline.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="Longest call, such as 90s or 5m.")]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", min=0, max=MAX_TOKENS, help="Most tokens of an answer; 0: as the agent has it.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What becomes of the figures. Making one raises UsageError for files that cannot be used, before any call."""

    baseline: Path | None
    updates: bool
    output: Path | None
    as_json: bool
    has_gate: bool

    def __post_init__(self) -> None:
        if self.updates and self.baseline is None:
            raise UsageError("--update-baseline needs --baseline, the file that is written.")
        if self.baseline is not None:
            read_baselines(self.baseline)

    def conclude(
        self,
        report: dict[str, Any],
        prompted: PromptedModel,
        *,
        kind: str,
        subject: str,
        figures: Figures,
        failures: int,
        show: Callable[[], None],
    ) -> None:
        """Compare or write the baseline and report. Raises typer.Exit(1) when a call failed or a figure fell."""
        losses: list[str] = []
        error = error_console()
        if self.baseline is not None:
            known = read_baselines(self.baseline)
            comparison = compare(known, kind, prompted.prompt_sha256, subject, figures)
            losses = [] if self.updates else comparison.losses
            report["baseline"] = {"warning": comparison.warning or None, "losses": losses}
            if comparison.warning and not self.updates:
                error.print(Text(f"{comparison.warning}.", style=f"bold {WARNING}"))
            if self.updates and not failures:
                write_baselines(self.baseline, updated(known, kind, prompted.prompt_sha256, subject, figures))
        if self.output is not None:
            write_json_file(self.output, report, "--output")
        if self.as_json:
            print_json(report)
        else:
            show()
            _show_cost(prompted)
        if failures:
            kept = "; the baseline is not written" if self.updates else ""
            error.print(Text(f"{pluralize(failures, 'call')} failed{kept}.", style=ERROR))
        elif self.updates:
            error.print(Text(f"The baseline of {subject} is written.", style=SUCCESS))
        for loss in losses:
            error.print(Text(f"{loss}.", style=ERROR))
        if failures or (losses and self.has_gate):
            raise typer.Exit(FAILED)


def share_text(value: float | None) -> str:
    """Format a share from 0 to 1; `-` for none."""
    return "-" if value is None else f"{value:.2f}"


def _show_cost(prompted: PromptedModel) -> None:
    usage = prompted.usage
    cost = prompted.cost_micros
    spent = "unpriced" if cost is None else money(cost, prompted.currency)
    text = (
        f"{prompted.full_name}: {pluralize(prompted.calls, 'call')}, {number(usage.input_tokens)} tokens in, "
        f"{number(usage.output_tokens)} out, cost {spent}; prompt {prompted.prompt_sha256[:12]}"
    )
    console().print(Text(text, style=DIM))
