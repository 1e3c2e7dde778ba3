"""The command of a delivery: what its webhook's definition takes from the body, encrypted, with long texts as blobs.

Credentials are stored beside the log before the owner is asked: those of the environment, those that are stored for the
tenant, and those of the body, which win. Their values are in no command.

Before: reader.py with a record and a definition. After: decide.py.
"""

import json
from collections.abc import Mapping

import orjson

from loomlog.connectors.configuration.secret_registry import SecretRefused, SecretRegistry
from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey
from loomlog.connectors.definitions.triggers import hook_texts
from loomlog.connectors.errors import Permanent
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import ReceiveDelivery, SubmitDelivery
from loomlog.schemas.records import Value, replace
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.fields import value_text
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.opening import CredentialWriter, RunEncryption
from loomlog.services.families.ports.credentials import CredentialUser
from loomlog.services.families.webhook import limits
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.decide import CHANNEL, SPAWN
from loomlog.services.families.webhook.definition import WebhookDefinition
from loomlog.services.families.webhook.mapping import (
    SEAL_PURPOSE,
    MappingInvalid,
    RunInput,
    run_input,
    take_credentials,
)
from loomlog.services.families.webhook.secrets import environment_credentials
from loomlog.services.families.webhook.state import run_id_of
from loomlog.services.families.webhook.verdicts import (
    REJECTED_BODY,
    REJECTED_DELIVERY,
    REJECTED_MAPPING,
    UNRESOLVABLE_SECRET,
)


class DeliveryRefused(Exception):
    """The delivery cannot be made a command: `verdict` says why, the text for people."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class Delivery(Value, frozen=True, kw_only=True):
    """A delivery that its owner can be asked to take."""

    command: ReceiveDelivery
    value: str = ""
    """JSON text that is published to a channel; empty for a run."""


class DeliveryBuilder:
    """Builds deliveries. `credentials` and `secret` None: there is no key to keep credentials with."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        encryption: RunEncryption,
        secrets: SecretRegistry,
        channel_value_bytes: int,
        credentials: CredentialWriter | None,
        secret: SecretKey | None,
        stored: CredentialReader,
    ) -> None:
        self._blobs = blobs
        self._encryption = encryption
        self._secrets = secrets
        self._channel_value_bytes = channel_value_bytes
        self._credentials = credentials
        self._secret = secret
        self._stored = stored

    async def body_text(self, submitted: SubmitDelivery) -> str:
        """Return the body of a record in plaintext. Raises ConnectorError."""
        text = submitted.body
        if submitted.body_blob is not None:
            text = (await self._blobs.get(submitted.body_blob)).decode("utf-8", "replace")
        return await self._encryption.decrypt_text(text, submitted.envelope.tenant)

    async def build(self, definition: WebhookDefinition, submitted: SubmitDelivery, position: str) -> Delivery:
        """Return the delivery of a record at a position. Raises DeliveryRefused, ConnectorError."""
        text = await self.body_text(submitted)
        try:
            body = parse_body(text)
            taken, rest = take_credentials(definition.webhook, body)
            if taken:
                text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
            input_ = run_input(definition.webhook, rest, text)
            if definition.webhook.delivery == CHANNEL:
                value_text(body, self._channel_value_bytes)
        except BodyInvalid as error:
            raise DeliveryRefused(REJECTED_BODY, f"the body: {error}") from error
        except MappingInvalid as error:
            raise DeliveryRefused(REJECTED_MAPPING, str(error)) from error
        except Refused as error:
            raise DeliveryRefused(REJECTED_BODY, f"the body: {error}") from error
        command = self._command(definition, submitted, position, input_)
        if command.delivery == CHANNEL:
            return Delivery(command=command, value=text)
        credentials = await self._collect_credentials(definition, submitted, taken, user=input_.user_id)
        if credentials:
            await self._keep(definition, command.envelope.command_id, credentials)
        command = replace(command, credentials=tuple(sorted(credentials)))
        return Delivery(command=await self._with_content(command, input_))

    def _command(
        self, definition: WebhookDefinition, submitted: SubmitDelivery, position: str, input_: RunInput
    ) -> ReceiveDelivery:
        block, envelope = definition.webhook, submitted.envelope
        limit = block.rate_limit
        is_spawn = block.delivery == SPAWN
        return ReceiveDelivery(
            envelope=CommandEnvelope(
                command_id=envelope.command_id,
                tenant=definition.tenant,
                subject=submitted.by,
                issued_at_ms=envelope.issued_at_ms,
            ),
            name=definition.name,
            delivery_id=submitted.delivery_id,
            def_id=definition.def_id,
            delivery=block.delivery,
            received_at_ms=submitted.received_at_ms,
            source_position=position,
            replay_of=submitted.replay_of,
            by=submitted.by,
            agent=block.agent,
            channel=block.channel,
            after=submitted.positions if is_spawn else (),
            user_id=input_.user_id,
            user_tier=block.user_tier,
            metadata={name: orjson.dumps(value).decode() for name, value in block.metadata.items()} if is_spawn else {},
            on_complete=hook_texts(block.on_complete, {"webhook_name": definition.name}) if is_spawn else (),
            operator_key_restricted=block.operator_key_restricted,
            requests_per_minute=0 if limit is None else limit.requests_per_minute,
            burst=0 if limit is None else limit.burst,
        )

    async def _collect_credentials(
        self, definition: WebhookDefinition, submitted: SubmitDelivery, taken: Mapping[str, str], *, user: str
    ) -> Mapping[str, str]:
        block = definition.webhook
        asks = CredentialUser(
            tenant=definition.tenant,
            user=user,
            agent=block.agent,
            purpose=f"webhook {definition.name}",
            run_id=run_id_of(definition.aggregate, submitted.envelope.command_id),
        )
        try:
            stored = await self._stored.resolve_all(block.user_credentials, asks)
            from_environment = environment_credentials(self._secrets, definition)
        except (SecretRefused, Permanent) as error:
            raise DeliveryRefused(UNRESOLVABLE_SECRET, str(error)) from error
        return {**from_environment, **stored, **self._unseal(submitted), **taken}

    def _unseal(self, submitted: SubmitDelivery) -> Mapping[str, str]:
        """Return the credentials that an api has taken out of the body."""
        sealed, envelope = submitted.sealed_credentials, submitted.envelope
        if not sealed:
            return {}
        if self._secret is None:
            raise DeliveryRefused(REJECTED_DELIVERY, "its credentials cannot be opened without LOOMLOG_SECRET_KEY")
        try:
            opened: dict[str, str] = orjson.loads(self._secret.decrypt(sealed, SEAL_PURPOSE, envelope.tenant))
        except SecretDecryptionError as error:
            raise DeliveryRefused(REJECTED_DELIVERY, f"its credentials cannot be opened: {error}") from error
        return opened

    async def _keep(self, definition: WebhookDefinition, command_id: str, credentials: Mapping[str, str]) -> None:
        if self._credentials is None:
            raise DeliveryRefused(REJECTED_DELIVERY, "credentials cannot be kept without LOOMLOG_SECRET_KEY")
        run_id = run_id_of(definition.aggregate, command_id)
        await self._credentials.put(definition.tenant, run_id, credentials)

    async def _with_content(self, command: ReceiveDelivery, input_: RunInput) -> ReceiveDelivery:
        """Return the command with goal and metadata: untrusted text, encrypted for the user of the run."""
        cipher = await self._encryption.cipher(command.envelope.tenant, command.user_id)
        goal = cipher.untrusted_text(input_.goal) if input_.goal else ""
        metadata = {name: cipher.untrusted_text(text) for name, text in input_.run_metadata.items()}
        command = replace(command, run_metadata=metadata)
        if len(raw := goal.encode()) <= limits.INLINE_BYTES:
            return replace(command, goal=goal)
        return replace(command, goal_blob=await self._blobs.put(raw))
