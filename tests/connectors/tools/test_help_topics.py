"""The built-in help topics: every name in them exists, so what an agent is told can be done."""

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
import typer

from loomlog.connectors.configuration import agent_block
from loomlog.connectors.configuration.key_descriptions import KEY_DESCRIPTIONS
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import PREFIX, Settings
from loomlog.connectors.protocols import Tool
from loomlog.connectors.tools.file_skills import FileSkills
from loomlog.connectors.tools.help import HelpTopic, load_help_topics
from loomlog.connectors.tools.registry import ToolOptions, build_tools
from loomlog.connectors.tools.tool_guide import unknown_placeholders
from loomlog.services.api.openapi import build_document
from loomlog.services.application.bodies import models
from loomlog.services.cli.main import app
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.operation_input import input_schema
from loomlog.services.families.definition.kind_api import DefinitionVerified, DefinitionVersion
from loomlog.services.families.registry import all_families, all_operations, family_tools

CODE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"loomlog(?: |$)")
ROUTE = re.compile(r"(GET|POST|PUT|DELETE) (/\S+)")
WIDTH, LINES = 150, range(12, 50)
OTHER_NAMES = {"code-js", "mock", "ok", "error", "run(input)"}
"""Built-in providers, fields of results, and the function of a code agent."""
TOPICS = tuple(load_help_topics().values())


@cache
def tools() -> dict[str, Tool]:
    skills = FileSkills({}, lambda name, block: "")
    return build_tools(ToolOptions(bash_enabled=True, bench_enabled=True, ledger_path="unused", skills=skills))


def properties(schema: Any) -> Iterator[str]:
    """The names of fields in a schema, and the words they may be."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (word for word in schema.get("enum", ()) if isinstance(word, str))
        for part in schema.values():
            yield from properties(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from properties(part)


@cache
def known_names() -> frozenset[str]:
    """Tools, their operations and fields, keys of the configuration, fields of requests, scopes, codes."""
    names: set[str] = {*tools(), *family_tools(), *SCOPES, *STATUS_BY_CODE, *OTHER_NAMES}
    for tool in tools().values():
        names |= {*properties(tool.input_schema), *getattr(tool, "operations", ())}
    for operation in all_operations():
        names |= {*properties(input_schema(operation.input))}
        if operation.tool is not None:
            names |= {operation.tool.tool, operation.tool.op}
    names |= {*DefinitionVersion.__struct_fields__, *DefinitionVerified.__struct_fields__}
    for family in all_families():
        names |= {command.verb for command in family.commands}
    names |= {key for block in KEY_DESCRIPTIONS.values() for key in block}
    names |= {one.name for one in fields(Configuration)} | {one.name for one in fields(agent_block.AgentBlock)}
    for model in vars(models).values():
        names |= set(getattr(model, "model_fields", ()))
    return frozenset(names)


@cache
def routes() -> frozenset[tuple[str, str]]:
    paths = build_document("1")["paths"]
    return frozenset((method.upper(), path) for path, methods in paths.items() for method in methods)


def command_problem(text: str) -> str:
    """Why a command line cannot be given; empty when it can."""
    command: Any = typer.main.get_command(app)
    words, path = text.split()[1:], ["loomlog"]
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        context = typer.Context(command)
        found_command = command.get_command(context, words[0])
        if found_command is None:
            return f"{' '.join(path)} has no command {words[0]}"
        command, path = found_command, [*path, words.pop(0)]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return next(
        (f"{' '.join(path)} has no option {word}" for word in words if word[:2] == "--" and word not in options), ""
    )


def command_options(command: Any) -> Iterator[str]:
    """The options of a command and those below it."""
    yield from (option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts))
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from command_options(command.get_command(context, name))


@cache
def options() -> frozenset[str]:
    return frozenset(command_options(typer.main.get_command(app)))


def problem(name: str) -> str:
    """Why a name in backticks does not exist; empty when it does."""
    if COMMAND.match(name):
        return command_problem(name)
    if name.startswith(PREFIX):
        setting = name.removeprefix(PREFIX).partition("=")[0].casefold()
        return "" if setting in {one.name for one in fields(Settings)} else "is no setting"
    if match := ROUTE.fullmatch(name):
        return "" if match.groups() in routes() else "is no route"
    if name.startswith("{{"):
        return "is no placeholder" if unknown_placeholders(name) else ""
    if name.startswith("--"):
        return "" if name.split()[0] in options() else "is no option"
    return "" if name in known_names() else "is no name of a tool, operation, key, field or code"


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_name_exists(topic: HelpTopic) -> None:
    lines = topic.content.splitlines()
    names = [name for line in lines if not line.startswith("    ") for name in CODE.findall(line)]
    names += [line.strip() for line in lines if line.startswith("    loomlog ")]
    wrong = [f"{name}: {why}" for name in names if (why := problem(name))]
    assert wrong == []


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_topic_is_short_and_described(topic: HelpTopic) -> None:
    lines = topic.content.splitlines()
    assert len(lines) in LINES
    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("# ")
    assert topic.description.endswith(".")


def test_topics_that_a_topic_names_exist_and_aliases_are_unique() -> None:
    names = {topic.name for topic in TOPICS}
    for topic in TOPICS:
        mentioned = re.findall(r"see the topics? ([a-z, -]+?)(?:[.;]|\n|$)", topic.content)
        assert {one.strip() for text in mentioned for one in text.split(",")} <= names, topic.name
    aliases = [alias for topic in TOPICS for alias in topic.aliases]
    assert len(aliases) == len(set(aliases))
    assert not names & set(aliases)


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("loomlog runs ls --agent", True),
        ("loomlog runs sl", False),
        ("loomlog runs ls --agnt", False),
        ("LOOMLOG_KAFKA", True),
        ("LOOMLOG_KAFFKA", False),
        ("GET /v1/runs/{run_id}", True),
        ("GET /v1/run/{run_id}", False),
        ("parallel_spawn", True),
        ("parallel", False),
        ("{{tool:Context.guide}}", True),
        ("{{tool:Context.guid}}", False),
        ("--at", True),
        ("--att", False),
    ],
)
def test_the_check_sees_what_does_not_exist(name: str, is_known: bool) -> None:
    assert (problem(name) == "") is is_known
