"""Every text field of a command is encrypted, or is named here with the reason why it is no content."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from loomlog.schemas.generated import run_commands
from loomlog.schemas.generated.run_commands import ForkRun, PostInput, ResolveCall, ResolveInterruption, StartRun
from loomlog.services.stream.encryption.content_fields import encrypt_command

COMMANDS = (StartRun, ForkRun, PostInput, ResolveCall, ResolveInterruption)
NOT_CONTENT = {
    # ids, names and routing that the owner decides by, or that operators search for
    "agent", "agent_id", "run_id", "session_id", "user_id", "origin_run_id", "parent_agent_id", "interrupt_id",
    "origin_agent_id", "idempotency_key", "request_sha256", "definition", "disposition", "source", "user_tier",
    "command_id", "tenant", "after", "subject", "batch_sha256", "seed", "call_id", "root_run_id", "parent_run_id",
    # kinds and media types
    "role", "type", "kind", "media_type", "sha256", "name",
    # models and limits of the definition
    "provider", "model", "effort", "tools", "allowed_hosts", "web_search_filter", "stop", "prompt_mode", "credentials",
    "model_pattern", "hosts_source", "reason", "tier",
    # what follows a run; the payloads of hooks are encrypted (test_content_fields.py)
    "on_complete", "trigger",
    # queues of channels
    "channel", "scope", "scope_id", "wait_id", "lease_id",
}  # fmt: skip
MARK = "mark"


def marked(kind: Any) -> Any:
    """A value of a type in which every text is the mark."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str:
        return MARK
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return kind(**{field.name: marked(hints[field.name]) for field in msgspec.structs.fields(kind)})
    if origin is tuple:
        return (marked(arguments[0]),)
    if origin is not None and issubclass(origin if isinstance(origin, type) else object, dict):
        return {MARK: marked(arguments[1])}
    if origin is not None and getattr(origin, "__name__", "") in ("Mapping", "dict"):
        return {"key": marked(arguments[1])}
    chosen = [one for one in arguments if one is not type(None)]
    if chosen and type(None) in arguments:
        return marked(chosen[0])
    return {int: 1, float: 1.0, bool: True, bytes: b"x"}.get(kind, 1)


def marks_in(value: Any, name: str = "") -> Iterator[str]:
    """Names of the fields that still have the mark."""
    if value == MARK:
        yield name
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            yield from marks_in(getattr(value, field.name), field.name)
    elif isinstance(value, dict):
        for one in value.values():
            yield from marks_in(one, name)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from marks_in(one, name)


def test_every_text_of_a_command_is_encrypted_or_listed() -> None:
    for kind in COMMANDS:
        plain = marked(kind)
        assert set(marks_in(plain)), kind
        sealed = encrypt_command(plain, lambda text, untrusted: f"token of {text}")
        assert set(marks_in(sealed)) - NOT_CONTENT == set(), kind.__name__


def test_the_commands_with_content_are_these() -> None:
    """A new command with a free text has to be added above; results are encrypted by their sender, imports refused."""
    others = [
        kind
        for kind in vars(run_commands).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == run_commands.__name__
    ]
    texts = {
        kind.__name__
        for kind in others
        if kind not in COMMANDS and set(marks_in(marked(kind))) - NOT_CONTENT - {"at_ms"}
    }
    assert texts <= {"ImportRun", "HandOverModelReply", "HandOverToolResult"}, texts
