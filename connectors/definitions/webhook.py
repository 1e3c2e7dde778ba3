"""The kind webhook: requests from outside that start a run, or that are published to a channel.

Its fields are those of webhooks.<name> in the files.

Before: kind.py, triggers.py, connectors/configuration/webhook_block.py. After: kinds.py.
"""

import re

from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.triggers import check_hooks

_TARGET = re.compile(r"(goal|user_id|(user_credentials|run_metadata)\.[A-Za-z0-9_-]{1,64})\Z")
_PATH = re.compile(r"\$(\.[A-Za-z0-9_-]+|\[[0-9]{1,9}\])*\Z")
MAPPING_TARGETS_MAX = 64
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{0,128}\Z")


def check_webhook(webhook: WebhookBlock) -> None:
    """Raise DefinitionProblem for a webhook that cannot be."""
    needed, other = ("agent", "channel") if webhook.delivery == "spawn" else ("channel", "agent")
    if not getattr(webhook, needed):
        raise DefinitionProblem("missing_field", f"missing required field: {needed} (for delivery {webhook.delivery})")
    if getattr(webhook, other):
        raise DefinitionProblem("invalid_definition", f"{other}: delivery {webhook.delivery} has no {other}")
    _check_auth(webhook.auth)
    if len(webhook.payload_mapping) > MAPPING_TARGETS_MAX:
        message = f"payload_mapping: {len(webhook.payload_mapping)} targets, at most {MAPPING_TARGETS_MAX}"
        raise DefinitionProblem("too_many", message)
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
    check=check_webhook,
)
