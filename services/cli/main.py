"""loomlog: the command line. `loomlog --help` lists the commands; each has a file of its own, here or in a family.

Every read has --json, every write prints the position of the event it caused, exit codes are in errors.py.

Before: a person, a script, make. After: one file per group of commands.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from loomlog.services.cli.auth_file import load_auth_file
from loomlog.services.cli.commands import CommandGroup, listed_command
from loomlog.services.cli.errors import UsageError

FOLDER = "loomlog.services.cli"
FAMILIES = Path(__file__).parents[1] / "families"
OWN_COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("admin.init:init", "Write a commented loomlog.yaml with two agents."),
    "up": ("stack.up:up", "Start broker, Postgres, topics and all services; stay until Ctrl-C."),
    "down": (
        "stack.up:down",
        "Stop everything that runs in this state folder, including leftovers of an earlier stack.",
    ),
    "status": ("doctor.status:status", "Show what runs here: processes, addresses, lag, rates."),
    "logs": ("stack.logs:logs", "Show the logs of the local stack."),
    "doctor": (
        "doctor.doctor:doctor",
        "Check every prerequisite and every running part; report what is wrong, why, and what to do.",
    ),
    "login": (
        "admin.login:login",
        "Sign in with an identity provider of the installation; the token is kept for later commands.",
    ),
    "logout": ("admin.login:logout", "Forget the token of `loomlog login`, here and at the provider."),
    "ui": ("admin.ui:ui", "Open the web page of this installation in a browser."),
    "hash": ("admin.hash:hash_app", "Print the content hash of an agent or a skill."),
    "import": ("claude_code.command:import_app", "Import agents and skills of other programs."),
    "review": ("runs.review:review", "Start everything, let an agent review a folder, and show the findings."),
    "demo": ("demo.demo:demo", "Kill a runtime in the middle of a run, and show that nothing was lost or done twice."),
    "run": ("runs.runs:start", "Start a run and follow it."),
    "runs": ("runs.watch:runs_app", "List, show, follow, pause, compact, quarantine, resolve and cancel runs."),
    "evals": ("runs.judge:evals_app", "Judgements of runs: submit, list, show; let an agent judge many."),
    "agents": ("admin.agents:agents_app", "Agents: list, show, check the configuration."),
    "defs": (
        "definitions.defs:defs_app",
        "Versions of agents, skills and other definitions: list, make, promote, compare, take back.",
    ),
    "blame": ("definitions.blame:blame", "Show the definition that a run was pinned to, who made it and why."),
    "channels": ("channels.channels:channels_app", "Channels: declare, publish, read, wait, follow."),
    "schedules": (
        "schedules.schedules:schedules_app",
        "Schedules: when they fire, what they have fired; run-now and pauses.",
    ),
    "inbox": ("runs.interrupts:inbox_app", "Show and answer what runs ask people."),
    "pause": ("admin.pauses:pause", "Pause everything, a tenant or an agent before its next model calls."),
    "resume": ("admin.pauses:resume", "Resume a pause; the target is named as in `pause`."),
    "state": ("admin.pauses:state", "Show whether the installation is running or paused, and list all pauses."),
    "limits": ("admin.budget_limits:limits_app", "Limits on what is spent in a calendar month."),
    "repair": ("admin.repair:repair", "Restate a quarantined aggregate, so that it continues."),
    "usage": ("admin.budget_limits:usage", "Show usage and its cost; amounts of different currencies are never added."),
    "routing": (
        "admin.routing:routing",
        "Show the models of each plan and tier, best first, and the one that new runs use now.",
    ),
    "backup": ("admin.backups:backup_app", "Back up everything, or a tenant, to one file, and restore it."),
    "events": ("log.events:events_app", "The log itself: tail it, get one record."),
    "replay": (
        "log.replay:replay_run",
        "Fold a run or an aggregate again from its records, without calls, and compare; exit 1 on drift.",
    ),
    "dlq": (
        "log.dead_letters:dead_letters_app",
        "Dead letters (records that could not be handled): list, show, replay and acknowledge them.",
    ),
    "audit": ("log.audit:audit_app", "Who did what, and is the log what was written and signed?"),
    "subjects": ("admin.subjects:subjects_app", "Subjects with encrypted content, and erasing a subject."),
    "presets": ("admin.presets:presets_app", "Show the configuration layers that come with the program."),
    "env-template": (
        "admin.presets:env_template",
        "Print every environment setting with its default, as a template file.",
    ),
    "projections": (
        "log.projections:projections_app",
        "The read models: their lag, their problems, and rebuilding them.",
    ),
    "topics": ("log.topics:topics_app", "The topics of the log."),
    "mcp": (
        "mcp.command:mcp_app",
        "Serve MCP on standard input and output, over the API: for editors and assistants.",
    ),
    "mcp-registry": ("mcp.registry:registry_app", "Recipes of MCP servers for configurations."),
    "tokens": ("access.tokens:tokens_app", "Tokens: create, import, rotate, retire, list, show."),
    "users": (
        "access.groups:users_app",
        "Users of a tenant: who is registered, with which access, and their tokens.",
    ),
    "tenants": ("access.groups:tenants_app", "Tenants: which there are, and their quotas."),
    "credentials": (
        "access.credentials:credentials_app",
        "Stored credentials: set, list, remove, encrypt again.",
    ),
    "access": ("access.groups:access_app", "Whether a caller may call an operation, and why."),
    "whoami": ("access.groups:whoami", "Show the caller that the token is."),
    "operations": (
        "operations:list_operations",
        "Show what can be done, by whom, and where: over HTTP, in the command line, by agents.",
    ),
    "call": ("operations:call", "Call any operation over HTTP by its name, and print its answer as JSON."),
}
"""Commands with their function and the first sentence of its docstring, in the order of the help."""


def _commands_in_folders() -> Mapping[str, tuple[str, str]]:
    """Return the commands that folders of families bring in their commands.tsv; no family is imported for it."""
    commands: dict[str, tuple[str, str]] = {}
    for file in sorted(FAMILIES.glob("*/commands.tsv")):
        for line in file.read_text().splitlines():
            name, place, summary = line.split("\t")
            commands[name] = f"loomlog.services.families.{file.parent.name}.{place}", summary
    return commands


COMMANDS: Mapping[str, tuple[str, str]] = {
    **{name: (f"{FOLDER}.{place}", text) for name, (place, text) in OWN_COMMANDS.items()},
    **_commands_in_folders(),
}
"""All that are written by hand, with their module by its whole name."""
FAMILY_COMMANDS: Mapping[str, str] = {
    "approvals": "The rules of a tenant for tool calls, and the calls that wait for approval.",
    "callback": "A request to an address of others after the end of a run.",
    "hook": "The hooks of an installation: external programs that are called before and after tool calls.",
}
"""Families of every installation that have commands, with their summary: kept here, so that the help imports none."""
WRITTEN_GROUPS: Mapping[str, str] = {
    "access": "access",
    "agent": "agents",
    "act": "audit",
    "aggregate": "repair",
    "audit": "audit",
    "budget": "limits",
    "channel": "channels",
    "consolidation": "memory",
    "database": "memory",
    "dead_letter": "dlq",
    "definition": "defs",
    "erasure": "subjects",
    "identity": "tokens",
    "installation": "status",
    "interrupt": "inbox",
    "limit": "limits",
    "log": "events",
    "mcp": "mcp",
    "memory": "memory",
    "model": "routing",
    "pause": "pause",
    "preset": "presets",
    "projection": "projections",
    "resident": "runs",
    "run": "runs",
    "schedule": "schedules",
    "session": "runs",
    "state_file": "backup",
    "tenant": "tenants",
    "usage": "limits",
    "user": "users",
    "webhook": "webhooks",
}
"""Families and areas of the application whose commands are written by hand, with their group; the groups of other
families are made of their operations.
"""
ALIASES: Mapping[str, str] = {"snapshot": "backup", "operator-token": "tokens"}
"""Other names; not listed."""


class Loomlog(CommandGroup):
    """The commands of loomlog."""

    modules: ClassVar[Mapping[str, str]] = {name: place for name, (place, _) in COMMANDS.items()}
    helps: ClassVar[Mapping[str, str]] = {name: text for name, (_, text) in COMMANDS.items()}
    aliases: ClassVar[Mapping[str, str]] = ALIASES

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the table, then those of families."""
        return [*super().list_commands(ctx), *(name for name in _listed_families() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of the table, or else the group of a family: only then are families imported."""
        command = super().get_command(ctx, cmd_name)
        if self.lists_commands and command is None:
            return listed_command(cmd_name, _listed_families()[cmd_name])
        family = _families().get(cmd_name) if command is None else None
        if family is None:
            return command
        from loomlog.services.cli.operations import family_group

        return family_group(family)


def _listed_families() -> Mapping[str, str]:
    """Return the families that the help lists, with their summaries. Imports only those that an environment adds."""
    if os.environ.get("LOOMLOG_FAMILIES"):
        return {name: family.summary for name, family in _families().items()}
    return FAMILY_COMMANDS


def _families() -> Mapping[str, Any]:
    """Return the families with commands, by name. Raises UsageError when one cannot be used."""
    from loomlog.services.families import FamilyProblem
    from loomlog.services.families.registry import all_families, operations_of

    try:
        families = [family for family in all_families() if family.name not in WRITTEN_GROUPS]
        return {family.name: family for family in families if any(one.http for one in operations_of([family]))}
    except FamilyProblem as error:
        raise UsageError(f"{error}. LOOMLOG_FAMILIES names further families.") from error


def written_group(family: str) -> str:
    """Return the group of a family whose commands are written by hand; empty when they are made."""
    return WRITTEN_GROUPS.get(family, "")


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"loomlog {version('loomlog')}")
        raise typer.Exit


app = typer.Typer(name="loomlog", cls=Loomlog, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def loomlog(
    ctx: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run agents over a log: every step of a run is an event, and every state is rebuilt from the events."""
    if ctx.invoked_subcommand != "init":  # which replaces a file that cannot be used
        load_auth_file(Path.cwd(), os.environ)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the script `loomlog`. Ends the process with the exit code."""
    app(args=None if arguments is None else list(arguments), prog_name="loomlog")


if __name__ == "__main__":
    main(sys.argv[1:])
