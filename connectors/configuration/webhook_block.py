"""Block of webhooks in the configuration files: webhooks.<name>, and the content of one that was made at run time.

Before: the files, or an overlay. After: connectors/definitions/webhook.py checks it; services/families/webhook uses it.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_classes import BOUND, NEUTRAL, Grant, Order
from loomlog.connectors.configuration.field_types import (
    EnvName,
    JsonObject,
    NonNegativeInt,
    Switch,
    configuration_block,
)
from loomlog.connectors.configuration.trigger_block import CompletionHook, CredentialReference

MAX_SYNC_TIMEOUT_MS = 60_000


@configuration_block
class WebhookAuth:
    """Proof that a request must carry. Secrets are named by the environment variable that has them."""

    kind: Literal["hmac", "bearer", "none"]
    algorithm: Literal["sha256"] | None = None
    header: str = ""
    signing_secret_env: EnvName | None = None
    bearer_token_env: EnvName | None = None
    delivery_id_header: str = ""


@configuration_block
class WebhookRateLimit:
    """Limit of deliveries; 0: the default."""

    requests_per_minute: NonNegativeInt = 0
    burst: NonNegativeInt = 0


@configuration_block
class WebhookSyncResponse:
    """Whether a sender may wait for the end of the run, and how long."""

    enabled: Switch = False
    timeout_ms: Annotated[int, Field(strict=True, ge=1, le=MAX_SYNC_TIMEOUT_MS)] | None = None


@configuration_block
class WebhookBlock:
    """Content of a webhook. `payload_mapping`: field of the run -> text, or path into the body like $.issue.title."""

    enabled: Annotated[Switch | None, NEUTRAL] = None
    delivery: Annotated[Literal["spawn", "channel"], NEUTRAL] = "spawn"
    agent: Annotated[str, Grant(order=Order.NAMES, held="agents")] = ""
    channel: Annotated[str, Grant(order=Order.CHANNELS, held="channels_publish")] = ""
    user_tier: Annotated[str, Grant(order=Order.SAME, held="user_tier")] = ""
    auth: Annotated[WebhookAuth, Grant(order=Order.UNSET)]
    rate_limit: Annotated[WebhookRateLimit | None, Grant(order=Order.UNSET)] = None
    body_size_limit_bytes: Annotated[NonNegativeInt, BOUND] = 0
    user_credentials: Annotated[Mapping[str, CredentialReference], Grant(order=Order.UNSET)] = field(
        default_factory=dict
    )
    user_credentials_from_env: Annotated[Mapping[str, EnvName], Grant(order=Order.UNSET)] = field(default_factory=dict)
    metadata: Annotated[JsonObject, NEUTRAL] = field(default_factory=dict)
    tenant_id: Annotated[str, NEUTRAL] = ""
    payload_mapping: Annotated[Mapping[str, str], Grant(order=Order.UNSET)] = field(default_factory=dict)
    sync_response: Annotated[WebhookSyncResponse | None, NEUTRAL] = None
    on_complete: Annotated[tuple[CompletionHook, ...], Grant(order=Order.HOOKS, held="hosts", of_origin=False)] = ()
    operator_key_restricted: Annotated[Switch, NEUTRAL] = False
    isolated: Annotated[Switch, NEUTRAL] = False
