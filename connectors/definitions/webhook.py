"""The kind webhook: requests from outside that start a run, or that are published to a channel.

Before: kind.py, triggers.py. After: kinds.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import FORBID_EXTRA, EnvName, NonNegativeInt, Switch
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.triggers import CompletionHook, CredentialReference, check_hooks

MAX_SYNC_TIMEOUT_MS = 60_000
_TARGET = re.compile(r"(goal|user_id|(user_credentials|run_metadata)\.[A-Za-z0-9_-]{1,64})\Z")
_PATH = re.compile(r"\$(\.[A-Za-z0-9_-]+|\[[0-9]{1,9}\])*\Z")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{0,128}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAuth:
    """Proof that a request must carry. Secrets are named by the environment variable that has them."""

    __pydantic_config__ = FORBID_EXTRA
    kind: Literal["hmac", "bearer", "none"]
    algorithm: Literal["sha256"] | None = None
    header: str = ""
    signing_secret_env: EnvName | None = None
    bearer_token_env: EnvName | None = None
    delivery_id_header: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRateLimit:
    """Limit of deliveries; 0: the default."""

    __pydantic_config__ = FORBID_EXTRA
    requests_per_minute: NonNegativeInt = 0
    burst: NonNegativeInt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSyncResponse:
    """Whether a sender may wait for the end of the run, and how long."""

    __pydantic_config__ = FORBID_EXTRA
    enabled: Switch = False
    timeout_ms: Annotated[int, Field(strict=True, ge=1, le=MAX_SYNC_TIMEOUT_MS)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookBlock:
    """Content of a webhook. `payload_mapping`: field of the run -> text, or path into the body like $.issue.title."""

    __pydantic_config__ = FORBID_EXTRA
    enabled: Switch | None = None
    delivery: Literal["spawn", "channel"] = "spawn"
    agent: str = ""
    channel: str = ""
    user_tier: str = ""
    auth: WebhookAuth
    rate_limit: WebhookRateLimit | None = None
    body_size_limit_bytes: NonNegativeInt = 0
    user_credentials: Mapping[str, CredentialReference] = field(default_factory=dict)
    user_credentials_from_env: Mapping[str, EnvName] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tenant_id: str = ""
    payload_mapping: Mapping[str, str] = field(default_factory=dict)
    sync_response: WebhookSyncResponse | None = None
    on_complete: tuple[CompletionHook, ...] = ()
    operator_key_restricted: Switch = False
    isolated: Switch = False


def _check(webhook: WebhookBlock) -> None:
    needed, other = ("agent", "channel") if webhook.delivery == "spawn" else ("channel", "agent")
    if not getattr(webhook, needed):
        raise DefinitionProblem("missing_field", f"missing required field: {needed} (for delivery {webhook.delivery})")
    if getattr(webhook, other):
        raise DefinitionProblem("invalid_definition", f"{other}: delivery {webhook.delivery} has no {other}")
    _check_auth(webhook.auth)
    for target, value in webhook.payload_mapping.items():
        if not _TARGET.match(target):
            expected = "goal, user_id, user_credentials.<name> or run_metadata.<name>"
            raise DefinitionProblem("invalid_definition", f"payload_mapping: expected the keys {expected}")
        if not value or (value.startswith("$") and not _PATH.match(value)):
            expected = "a text, or a path such as $.issue.labels[0]"
            raise DefinitionProblem("invalid_definition", f"payload_mapping.{target}: expected {expected}")
    maps_credentials = any(target.startswith("user_credentials.") for target in webhook.payload_mapping)
    has_credentials = maps_credentials or webhook.user_credentials or webhook.user_credentials_from_env
    if webhook.delivery == "channel" and has_credentials:
        raise DefinitionProblem("invalid_definition", "delivery: a channel gets no credentials; leave them out")
    check_hooks(webhook.on_complete)


def _check_auth(auth: WebhookAuth) -> None:
    secrets = {"hmac": "signing_secret_env", "bearer": "bearer_token_env"}
    for kind, name in secrets.items():
        if auth.kind == kind and not getattr(auth, name):
            raise DefinitionProblem("missing_field", f"missing required field: auth.{name} (for kind {kind})")
        if auth.kind == "none" and getattr(auth, name):
            raise DefinitionProblem("invalid_definition", f"auth.{name}: kind none has no secret")
    for name in ("header", "delivery_id_header"):
        if not _HEADER.match(getattr(auth, name)):
            raise DefinitionProblem("invalid_definition", f"auth.{name}: expected the name of a header")


WEBHOOK = Kind(
    name="webhook",
    tool="WebhookDef",
    block=WebhookBlock,
    file_only={
        "tenant_id": "a definition belongs to the tenant of its author",
        "user_tier": "the plan of a run that a request from outside starts is the operator's",
    },
    server_set=frozenset({"operator_key_restricted", "isolated"}),
    check=_check,
)
