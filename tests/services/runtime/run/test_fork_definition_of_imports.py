"""Forks of runs that were imported: what the file says of definition and user is a wish, not a grant."""

import hashlib
from typing import Any

import pytest

from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    DefinitionOverrides,
    ImportOrigin,
    InterruptionTerms,
    ModelChoice,
    VolumeGrant,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.runtime.run.fork_definition import resolve_fork_definition
from tests.services.runtime.given import DeskAtWork
from tests.services.runtime.run.test_command_handler_forks import forking, order_of
from tests.services.runtime.run.test_command_handler_imports import importing, records_of, take_in, there_and_here
from tests.services.stream.given import CODEC
from tests.services.stream.outside import Definitions

ORIGIN = ImportOrigin(
    topic="loom.run.events", partition=0, first_offset=1, tenant="there", events=4, tail_digest="ab", bundle_sha256="cd"
)
HERE = AgentDefinition(
    name="helper",
    provider="acme",
    model="large",
    sha256="bb" * 32,
    tools=("Read", "Web*"),
    volumes=(VolumeGrant(name="work", mode="rw", is_default=True), VolumeGrant(name="books", mode="ro")),
    candidates=(ModelChoice(provider="acme", model="large"), ModelChoice(provider="acme", model="small")),
    run_timeout_s=60,
)
FORGED = replace(
    HERE,
    sha256="aa" * 32,
    tools=("Bash", "Read", "WebFetchTool", "Write"),
    volumes=(
        VolumeGrant(name="ops", mode="rw", is_default=True),
        VolumeGrant(name="books", mode="rw"),
        VolumeGrant(name="work", mode="ro"),
    ),
    interruption=InterruptionTerms(enabled=True),
    max_concurrent_children=1_000_000,
    run_timeout_s=0,
    unbounded_iterations=True,
    retry_attempts=99,
    max_iterations=-1,
)


def told(definition: AgentDefinition, origin: ImportOrigin | None = ORIGIN, **more: Any) -> RunStarted:
    return RunStarted(
        session_id="s", agent_id="a", definition=definition, segments=(), imported_from=origin, user_id="victim", **more
    )


def resolved(pinned: AgentDefinition, **fields: Any) -> AgentDefinition | CommandRefusal:
    known = Definitions()
    known.known = {"helper": HERE}
    origin = fields.pop("origin", ORIGIN)
    return resolve_fork_definition(forking(1, **fields), told(pinned, origin), known, tenant="t")


@pytest.mark.parametrize("fields", [{}, {"definition": "aaaaaaaa"}], ids=["unnamed", "by its hash"])
def test_what_the_file_grants_is_only_what_the_agent_has_here(fields: Any) -> None:
    actual = resolved(FORGED, **fields)
    assert isinstance(actual, AgentDefinition)
    assert actual.tools == ("Read", "WebFetch")
    assert actual.volumes == (
        VolumeGrant(name="work", mode="ro", is_default=True),
        VolumeGrant(name="books", mode="ro"),
    )
    assert (actual.interruption, actual.max_concurrent_children) == (None, HERE.max_concurrent_children)
    assert (actual.run_timeout_s, actual.unbounded_iterations) == (60, False)
    assert (actual.retry_attempts, actual.max_iterations) == (5, 0)
    assert actual.sha256 not in (HERE.sha256, FORGED.sha256)


def test_its_model_and_its_words_stay_as_any_caller_could_ask_for_them() -> None:
    actual = resolved(replace(HERE, model="other", system_prompt="Be brief.", max_tokens=7))
    assert isinstance(actual, AgentDefinition)
    assert (actual.model, actual.system_prompt, actual.max_tokens, actual.candidates) == ("other", "Be brief.", 7, ())


def test_a_definition_that_is_the_one_here_is_the_one_here() -> None:
    assert resolved(replace(HERE, sha256="ff" * 32)) == HERE
    assert resolved(FORGED, definition="current") == HERE


def test_a_text_is_the_same_whether_the_file_or_the_agent_here_has_it_by_reference() -> None:
    data = b"Be kind."
    ref = BlobRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    known = Definitions()
    known.known = {"helper": replace(HERE, system_prompt=data.decode(), code_body=data.decode())}
    pinned = replace(HERE, system_prompt_blob=ref, code_blob=ref)
    assert resolve_fork_definition(forking(1), told(pinned), known, tenant="t") == known.known["helper"]


def test_the_long_words_of_the_file_stay() -> None:
    ref = BlobRef(sha256="ab" * 32, size_bytes=70_000)
    actual = resolved(replace(HERE, system_prompt_blob=ref))
    assert isinstance(actual, AgentDefinition)
    assert (actual.system_prompt, actual.system_prompt_blob) == ("", ref)


def test_overrides_narrow_what_is_left() -> None:
    actual = resolved(FORGED, overrides=DefinitionOverrides(tools=("Bash",)))
    assert isinstance(actual, CommandRefusal)
    assert "it has Read, WebFetch" in actual.message


@pytest.mark.parametrize(
    "script",
    [{"code_body": "tools.Bash()"}, {"code_blob": BlobRef(sha256="ab" * 32, size_bytes=3, media_type="text/plain")}],
)
def test_another_script_is_refused_with_what_to_do(script: Any) -> None:
    actual = resolved(replace(FORGED, **script))
    assert isinstance(actual, CommandRefusal)
    assert (actual.code, "another script" in actual.message, "current" in actual.message) == ("bad_request", True, True)


def test_an_agent_that_is_not_here_is_refused_with_what_to_do() -> None:
    actual = resolved(replace(FORGED, name="gone"))
    assert isinstance(actual, CommandRefusal)
    assert (actual.code, "agent gone does not exist" in actual.message) == ("unknown_agent", True)
    assert "name an agent" in actual.message


@pytest.mark.parametrize("origin", [None, replace(ORIGIN, restored=True)], ids=["of this log", "restored"])
def test_a_run_of_this_log_and_a_restored_one_keep_their_definition(origin: ImportOrigin | None) -> None:
    assert resolved(FORGED, origin=origin) == FORGED


async def fork_of_import(*, restored: bool) -> tuple[DeskAtWork, RunStarted]:
    there, here = await there_and_here()
    there.definitions.known["helper"] = here.definitions.known["helper"]
    values = records_of(there, "r_tok")
    first = CODEC.decode(values[0])
    assert first.envelope is not None
    wide = replace(first.record, user_id="victim", definition=replace(first.record.definition, tools=("T", "Bash")))
    command = importing([CODEC.encode_event(first.envelope, wide), *values[1:]], "r_tok")
    await take_in(here, replace(command, origin=replace(command.origin, restored=restored)))
    prepared = await here.looked_up(forking(1, prompt="go on", user_id="me"))
    assert order_of(prepared).definition is not None
    assert here.decide(prepared) == ["RunStarted", "ModelCallRequested"]
    here.flush()
    return here, CODEC.decode(records_of(here, "r_tok-f")[0]).record


async def test_a_fork_of_an_import_is_the_callers_and_has_what_its_agent_has_here() -> None:
    _, fork = await fork_of_import(restored=False)
    assert (fork.user_id, fork.definition.tools) == ("me", ("T",))


async def test_a_fork_of_a_restored_run_is_its_users_and_has_what_it_had() -> None:
    _, fork = await fork_of_import(restored=True)
    assert (fork.user_id, fork.definition.tools) == ("victim", ("T", "Bash"))
