"""What a provider is sent instead of secrets, and what it gets as it is."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load_configuration
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ModelRequest, Reply
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ModelAnswered, ModelFailed
from loomlog.services.core.run.react import CallModel
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.models.context_plugins import (
    ContextPlugins,
    OutboundConversation,
    RedactPlugin,
    clean_json,
    collect_secrets,
)
from loomlog.services.runtime.models.model_calls import ModelCalls, RuntimeProvider
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.core.run.given import NOW, begun
from tests.services.runtime.given import ToldModel
from tests.services.stream.given import CODEC

SECRETS = {"MAIL_PASSWORD": "correct-horse", "MAIL_LONG_TOKEN": "correct-horse-battery"}


class Store:
    def __init__(self, given: Mapping[str, str] | Exception) -> None:
        self.given = given

    async def get(self, tenant: str, run_id: str) -> Mapping[str, str]:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    async def delete(self, run_ids: Sequence[str]) -> None: ...

    async def sweep(self) -> int:
        return 0


def facts(*credentials: str) -> RunFacts:
    state = begun().state
    assert isinstance(state, AwaitingModel)
    return replace(state.facts, options=replace(state.facts.options, credentials=credentials))


def plugin(given: Mapping[str, str] | Exception | None = None, **options: Any) -> RedactPlugin:
    return RedactPlugin(SECRETS, credentials=Credentials(Store(given or {})), **options)


async def sent(
    *blocks: Any, run: RunFacts | None = None, redact: RedactPlugin | None = None, **message: Any
) -> Message:
    outbound = OutboundConversation(system=(), messages=(Message(role="user", blocks=blocks, **message),))
    return (await (redact or plugin()).apply(outbound, run or facts(), "acme")).messages[0]


async def text_of(text: str) -> str:
    block = (await sent(TextBlock(text=text))).blocks[0]
    assert isinstance(block, TextBlock)
    return block.text


# --- known values ----------------------------------------------------------------------------------------------------


async def test_known_values_are_named_and_the_longest_goes_first() -> None:
    assert await text_of("a correct-horse-battery, a correct-horse") == (
        "a [redacted:MAIL_LONG_TOKEN], a [redacted:MAIL_PASSWORD]"
    )


def test_the_secrets_of_an_environment_are_known_by_their_names() -> None:
    environ = {
        "A_KEY": "12345678",
        "B_TOKEN": "12345678",
        "C_SECRET": "12345678",
        "D_AUTH": "12345678",
        "E_PASSWORD": "12345678",
        "F_CREDENTIAL": "12345678",
        "G_CREDENTIALS": "12345678",
        "H_DSN": "12345678",
        "SHORT_KEY": "1234567",
        "KEY_OF_NOTHING": "12345678",
        "PATH": "/usr/bin:/bin",
    }
    assert set(collect_secrets(environ, {"TEAM": "shared-token"})) == {
        *("A_KEY", "B_TOKEN", "C_SECRET", "D_AUTH", "E_PASSWORD", "F_CREDENTIAL", "G_CREDENTIALS", "H_DSN"),
        "TEAM",
    }


async def test_credentials_of_the_run_are_redacted_from_four_characters_on() -> None:
    redact = plugin({"git": "abcd", "pin": "123"})
    message = await sent(TextBlock(text="abcd 123"), run=facts("git", "pin"), redact=redact)
    assert message.blocks == (TextBlock(text="[redacted:credential] 123"),)


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted:authorization]"),
        ('"authorization": "token abcdef123456"', '"authorization": "token [redacted:authorization]"'),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [redacted:authorization]"),
        ("use bearer abcdefghijklmnop.qrst", "use bearer [redacted:bearer]"),
        ("sk-abcdefghijklmnop1234", "[redacted:key]"),
        ("sk-ant-api03-abcdefghijklmnop", "[redacted:key]"),
        ("sk_live_abcdefghijklmnop", "[redacted:key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted:key]"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[redacted:key]"),
        ("xoxb-1234567890-abc", "[redacted:token]"),
        ("ghp_" + "a" * 36, "[redacted:token]"),
        ("gho_" + "a" * 36, "[redacted:token]"),
        ("github_pat_" + "a" * 30, "[redacted:token]"),
        ("glpat-" + "a" * 20, "[redacted:token]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2Q", "[redacted:token]"),
        (
            "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nowIB\n-----END RSA PRIVATE KEY----- b",
            "a [redacted:private key] b",
        ),
        ("api_key=abcdefgh1", "api_key=[redacted:value]"),
        ("API-KEY: 'abcdefgh1'", "API-KEY: '[redacted:value]'"),
        ("db_password = hunter2hunter2", "db_password = [redacted:value]"),
        ('{"client_secret":"abcdefgh1"}', '{"client_secret":"[redacted:value]"}'),
        ("?token=abcdefgh1&x=1", "?token=[redacted:value]&x=1"),
    ],
)
async def test_what_looks_like_a_secret_is_redacted(said: str, left: str) -> None:
    assert await text_of(said) == left


@pytest.mark.parametrize(
    "said",
    [
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "sk-short",
        "the token: none",
        "max_tokens: 40960000",
        "the password is secret, the bearer of the ring",
        "task-management-and-other-words",
        "AKIA is a prefix",
        "a plain text, with nothing in it.",
    ],
)
async def test_what_only_resembles_one_is_left(said: str) -> None:
    assert await text_of(said) == said


@pytest.mark.parametrize(
    "piece", ["a", "=", "token=", "-----BEGIN ", "bearer ", "eyJ", " ", "sk-", '"', "PRIVATE KEY-"]
)
def test_a_hostile_text_takes_no_more_time_than_a_long_one(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    began = time.process_time()
    plugin()._mask(text, ())
    assert time.process_time() - began < 30


# --- what is changed and what is not ---------------------------------------------------------------------------------


async def test_system_texts_user_texts_and_results_are_cleaned_on_a_copy() -> None:
    result = ToolResultBlock(tool_use_id="c0", name="Read", text="correct-horse")
    before = OutboundConversation(
        system=("correct-horse",), messages=(Message(role="user", blocks=(TextBlock(text="correct-horse"), result)),)
    )
    after = await plugin().apply(before, facts(), "acme")
    assert after.system == ("[redacted:MAIL_PASSWORD]",)
    assert [block.text for block in after.messages[0].blocks] == ["[redacted:MAIL_PASSWORD]"] * 2  # type: ignore[union-attr]
    assert before.messages[0].blocks[0] == TextBlock(text="correct-horse")


async def test_a_message_without_a_secret_is_the_same_object() -> None:
    message = Message(role="user", blocks=(TextBlock(text="hello"), ImageBlock(media_type="image/png", data="AAAA")))
    after = await plugin().apply(OutboundConversation(system=(), messages=(message,)), facts(), "acme")
    assert after.messages[0] is message


async def test_signed_reasoning_is_never_touched_and_unsigned_reasoning_is() -> None:
    signed = await sent(TextBlock(text="x"), reasoning="correct-horse", reasoning_signature="sig")
    assert (signed.reasoning, signed.reasoning_signature) == ("correct-horse", "sig")
    assert (await sent(TextBlock(text="x"), reasoning="correct-horse")).reasoning == "[redacted:MAIL_PASSWORD]"


async def test_arguments_of_calls_are_cleaned_only_where_that_is_asked_for() -> None:
    call = ToolUseBlock(id="c0", name="HTTP", input='{"correct-horse":["correct-horse",1],"password":"hunter2hunter2"}')
    assert (await sent(call)).blocks == (call,)
    (cleaned,) = (await sent(call, redact=plugin(redact_tool_input=True))).blocks
    assert isinstance(cleaned, ToolUseBlock)
    assert json.loads(cleaned.input) == {
        "correct-horse": ["[redacted:MAIL_PASSWORD]", 1],
        "password": "[redacted:value]",
    }


def test_arguments_that_are_no_json_are_cleaned_as_a_text() -> None:
    assert clean_json("not json: abc", lambda text: text.replace("abc", "x")) == "not json: x"
    assert clean_json('{"a": "b"}', str) == '{"a": "b"}'


# --- in a model call -------------------------------------------------------------------------------------------------

REPLY = Reply(text="ok", stop_reason="end_turn", usage=Usage())


async def asked(
    plugins: ContextPlugins, *, is_outside: bool = True, run: RunFacts | None = None
) -> tuple[Any, list[ModelRequest]]:
    model = ToldModel(items=(REPLY,))
    log = MemoryLog({"deltas": 1})
    calls = ModelCalls(
        {"acme": RuntimeProvider(model=model, is_external=is_outside)},
        prices={},
        currency="",
        tools=ProcessToolset({}),
        blobs=MemoryBlobs(),
        previews=Previews(CODEC, log, topic="deltas", partitions=1, term_of=lambda partition: 7),
        tracing=NO_TRACING,
        clock_ms=lambda: NOW,
        plugins=plugins,
    )
    state = begun().state
    assert isinstance(state, AwaitingModel)
    message = Message(role="user", blocks=(TextBlock(text="correct-horse"),))
    state = replace(state, facts=replace(run or state.facts, messages=(message,), system=("correct-horse",)))
    effect = CallModel(run_id="r_tok", turn=1, attempt=1, provider="acme", model="large", not_before_ms=0)
    return await calls.run(effect, state, "acme"), model.requests


async def test_a_provider_is_sent_the_conversation_without_secrets() -> None:
    order, (request,) = await asked(ContextPlugins((plugin(),)))
    assert isinstance(order, ModelAnswered)
    assert request.system[0].text == "[redacted:MAIL_PASSWORD]"
    assert request.messages[0].blocks == (TextBlock(text="[redacted:MAIL_PASSWORD]"),)


async def test_a_code_agent_gets_it_as_it_is() -> None:
    _, (request,) = await asked(ContextPlugins((plugin(),)), is_outside=False)
    assert request.messages[0].blocks == (TextBlock(text="correct-horse"),)


@pytest.mark.parametrize(
    ("error", "transient"),
    [(Transient("away", kind="unavailable"), True), (Permanent("altered", kind="invalid"), False)],
)
async def test_what_cannot_be_redacted_is_not_sent(error: Exception, transient: bool) -> None:
    order, requests = await asked(ContextPlugins((plugin(error),)), run=facts("git"))
    assert isinstance(order, ModelFailed)
    assert (order.message, order.transient) == (f"context transform: redact: {error}", transient)
    assert requests == []


# --- configuration ---------------------------------------------------------------------------------------------------


def configured(text: str, folder: Path) -> Any:
    (folder / "loomlog.yaml").write_text(text)
    environ = {"LOOMLOG_CONFIG_FILES": str(folder / "loomlog.yaml")}
    settings, _ = read_settings(environ, working_directory=folder)
    return load_configuration(settings, environ, working_directory=folder)


def test_the_plugins_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "context_plugins:\n  - name: redact\n  - { name: redact, enabled: false, redact_tool_input: true }\n"
    actual = configured(text, tmp_path)
    assert [(b.name, b.enabled, b.redact_tool_input) for b in actual.configuration.context_plugins] == [
        ("redact", True, False),
        ("redact", False, True),
    ]
    assert actual.warnings == ()


def test_an_unknown_plugin_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected 'redact'"):
        configured("context_plugins: [{ name: redakt }]\n", tmp_path)


def test_whose_hooks_may_open_hosts_is_said_in_the_file(tmp_path: Path) -> None:
    actual = configured("hooks: { permit_host_widen: { owners: ['acme:ops', ops] } }\n", tmp_path)
    assert actual.configuration.hooks.permit_host_widen.owners == ("acme:ops", "ops")
    assert actual.warnings == ()
    with pytest.raises(ConfigurationError, match="not a known key"):
        configured("hooks: { permit: {} }\n", tmp_path)
