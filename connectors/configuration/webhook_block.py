"""Block of webhooks in the configuration files: webhooks.<name>, and the content of one that was made at run time.

Before: the files, or an overlay. After: connectors/definitions/webhook.py checks it; services/families/webhook uses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import FORBID_EXTRA, EnvName, NonNegativeInt, Switch
from loomlog.connectors.configuration.trigger_block import CompletionHook, CredentialReference

MAX_SYNC_TIMEOUT_MS = 60_000


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
