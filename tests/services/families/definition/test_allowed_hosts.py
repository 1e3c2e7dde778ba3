"""Addresses that processes call are among the hosts that the operator allows, already when they are written."""

import pytest

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRegistry, SecretUse
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.composition import Composer, Origin

SERVER = KINDS["mcpserver"]
ALLOWED = ("example.com", "127.0.0.1")


async def write(url: str, hosts: tuple[str, ...] | None) -> str:
    composer = Composer(None, MemoryBlobs(), hosts=hosts)  # type: ignore[arg-type]  # nothing is looked up
    author = Author(tenant="acme", subject="ann", command_id="c", issued_at_ms=0)
    overlay = {"transport": "http", "url": url}
    return str((await composer.compose(SERVER, "search", overlay, Origin(), author)).content["url"])


@pytest.mark.parametrize("url", ["https://example.com/mcp", "https://API.example.com./mcp", "http://127.0.0.1:1/mcp"])
async def test_an_allowed_host_is_taken(url: str) -> None:
    assert await write(url, ALLOWED) == url


@pytest.mark.parametrize(
    "url", ["https://example.org/mcp", "https://notexample.com/mcp", "http://127.0.0.2/mcp", "http://[::1]/mcp"]
)
async def test_another_host_is_refused_and_named(url: str) -> None:
    with pytest.raises(DefinitionProblem, match=r"url: the host \S+ is not among LOOMLOG_HTTP_HOST_ALLOWLIST"):
        await write(url, ALLOWED)


async def test_no_host_is_allowed_until_the_operator_names_one() -> None:
    with pytest.raises(DefinitionProblem):
        await write("https://example.com/mcp", ())


async def test_a_program_without_a_list_restricts_nothing() -> None:
    assert await write("https://example.org/mcp", None) == "https://example.org/mcp"


@pytest.mark.parametrize(("value", "sentence"), [("long-enough", ""), ("short", "less than 8"), ("", "is not set")])
async def test_secrets_that_cannot_sign_are_refused_when_they_are_written(value: str, sentence: str) -> None:
    use = SecretUse("PAGER", Purpose.CALLBACK_SIGNATURE, "acme", "example.com", ("secrets", "PAGER"))
    secrets = SecretRegistry([use], {"PAGER": value})
    composer = Composer(None, MemoryBlobs(), secrets=secrets)  # type: ignore[arg-type]  # nothing is looked up
    author = Author(tenant="acme", subject="ann", command_id="c", issued_at_ms=0)
    signed = {"url": "https://example.com/calls", "secret_env": "PAGER"}
    rule = {"name": "large", "then": "ask", "ask": {"subjects": ["ann"], "notify": signed}}
    hook = {"kind": "http", **signed}
    for kind, overlay, place in (
        ("agent", {"system_prompt": "Pay.", "approvals": {"rules": [rule]}}, "rules[0] (large).ask.notify.secret_env"),
        (
            "schedule",
            {"agent": "a", "schedule": "0 9 * * *", "on_complete": [hook]},
            "on_complete[0]",
        ),
    ):
        written = composer.compose(KINDS[kind], "made", overlay, Origin(), author)
        if not sentence:
            assert (await written).content
            continue
        with pytest.raises(DefinitionProblem) as refused:
            await written
        assert place in refused.value.message
        assert sentence in refused.value.message
