"""Identities in a process: opened once.

Before: services/families/opening.py. After: handlers.py; services/application/authentication.py asks the directory.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import partial

from loomlog.connectors.configuration.driver_options import installation_key, postgres_options
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.credentials.json_requests import JsonRequests
from loomlog.connectors.credentials.outside_stores import NO_STORES, OutsideStores
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.crypto.operator_tokens import Peppers, peppers_of
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.stored_credentials import (
    MemoryStoredCredentialRows,
    PostgresStoredCredentialRows,
    StoredCredentials,
)
from loomlog.connectors.tools.hosts import EXACT_PREFIX
from loomlog.schemas.generated.identity_commands import NoteCredential
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.identity.credential_handlers import CredentialHandlers
from loomlog.services.families.identity.credential_removal import ROUTE, CredentialRemoval
from loomlog.services.families.identity.credential_uses import CredentialUses
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.identity.handlers import IdentityHandlers
from loomlog.services.families.identity.limits import GRACE_S_DEFAULT
from loomlog.services.families.identity.quotas import Quotas
from loomlog.services.families.identity.renewals import Renewals
from loomlog.services.families.identity.user_handlers import UserHandlers
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.ports.callers import CallerDirectory
from loomlog.services.families.ports.credential_erasure import CredentialErasure
from loomlog.services.families.ports.credentials import CredentialValues
from loomlog.services.families.ports.entity_ends import EntityEnds
from loomlog.services.families.ports.quotas import CallerQuotas
from loomlog.services.families.ports.run_reads import RunReads

NEEDS = ("budget", "pause")  # what a pause refuses counts against no quota
CONFLICT = "revision_conflict"
GITHUB_HOST = "api.github.com"
"""Host that credentials may name besides those that the settings allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """What a process says of identities. `peppers` None: no token can be made; `secret` None: no credential stored."""

    peppers: Peppers | None = None
    grace_s: int = GRACE_S_DEFAULT
    secret: SecretKey | None = None
    rows: PostgresStoredCredentialRows | MemoryStoredCredentialRows = field(default_factory=MemoryStoredCredentialRows)
    """The values of stored credentials, sealed."""
    stores: OutsideStores = NO_STORES
    requests: JsonRequests = field(default_factory=JsonRequests)
    """To the addresses that credentials name."""


def read_options(loaded: ProcessConfiguration) -> IdentityOptions:
    """Return the options of a process. Raises Permanent for a secret key that is none."""
    settings = loaded.settings
    secret = installation_key(settings)
    return IdentityOptions(
        peppers=peppers_of(settings.operator_token_pepper, secret),
        grace_s=settings.operator_token_rotation_grace_seconds,
        secret=secret,
        rows=PostgresStoredCredentialRows(postgres_options(settings, "loomlog credentials")),
        stores=OutsideStores(loaded.configuration.credential_stores, loaded.secret_registry),
        requests=JsonRequests(
            private_hosts=settings.http_private_host_allowlist,
            hosts=(*settings.http_host_allowlist, EXACT_PREFIX + GITHUB_HOST),
        ),
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open identities."""
    options, replicas = context.options(IdentityOptions), context.parts.replicas
    commands = context.find(InstallationCommands) or InstallationCommands(context.commands, replicas)
    directory = Directory(replicas, options.peppers, clock_ms=context.clock_ms)
    handlers = IdentityHandlers(
        commands, directory, decrypt=context.decrypt, grace_s=options.grace_s, clock_ms=context.clock_ms
    )
    store = None if options.secret is None else StoredCredentials(options.rows, options.secret)
    uses = CredentialUses(context.commands, clock_ms=context.clock_ms)
    renewals = None
    if store is not None:
        renewals = Renewals(store, options.requests, partial(_note, commands), clock_ms=context.clock_ms)
    reader = CredentialReader(
        directory, store, stores=options.stores, requests=options.requests, renewals=renewals, uses=uses
    )
    removal = CredentialRemoval(commands, directory, store, clock_ms=context.clock_ms)
    of_credentials = CredentialHandlers(commands, directory, reader, removal, clock_ms=context.clock_ms)
    context.provide(directory, handlers, reader)
    context.provide_as(CredentialValues, reader)
    context.provide_as(CallerDirectory, directory)
    context.provide_as(CredentialErasure, removal)
    opened = FamilyServices(
        handlers={**handlers.by_operation(), **of_credentials.by_operation()},
        start_positions=lambda tenant, agent, user_id: directory.credential_positions(tenant),
        close=partial(_close, uses, options),
    )
    runs = context.find(RunReads)
    return opened if runs is None else _with_callers(opened, context, directory, runs)


def _with_callers(
    opened: FamilyServices, context: FamilyContext, directory: Directory, runs: RunReads
) -> FamilyServices:
    """Return the services of a process that has callers: their quotas, what there is of them, and news of tokens."""
    quotas = Quotas(directory, runs.count_active)
    context.provide_as(CallerQuotas, quotas)
    users = UserHandlers(context, directory, runs)
    ends = context.find(EntityEnds)
    return dataclasses.replace(
        opened,
        handlers={**opened.handlers, **users.by_operation()},
        admit_run=quotas.admit_run,
        tasks={} if ends is None else {"news of tokens": partial(directory.listen, ends.read)},
    )


async def _close(uses: CredentialUses, options: IdentityOptions) -> None:
    await uses.close()
    await options.rows.close()


async def _note(commands: InstallationCommands, command: NoteCredential) -> bool:
    """Send what a renewal notes; see renewals.Note."""
    try:
        await commands.send(command, status_route=ROUTE)
    except Unavailable as error:
        raise Transient(str(error), kind="unavailable") from error
    except Refused as error:
        if CONFLICT in (error.code, error.details.get("refusal")):
            return False
        raise Permanent(str(error), kind="refused") from error
    return True
