"""Credentials that runs of schedules have: values of environment variables and stored ones, outside of the log.

Before: the owner of a schedule, when it starts a run. After: services/runtime/content/run_credentials.py.
"""

import logging
from collections.abc import Mapping

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRefused, SecretRegistry
from loomlog.connectors.errors import Permanent
from loomlog.connectors.process.logs import about
from loomlog.connectors.tools.references import STORED
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.schedule_commands import NoteRunEnded
from loomlog.services.core.families import FROM_OUTBOX
from loomlog.services.families.opening import CredentialWriter
from loomlog.services.families.ports.credentials import CredentialUser, CredentialValues
from loomlog.services.families.schedule.decide import NO_CREDENTIAL, REFUSED

log = logging.getLogger(__name__)

NO_KEY = "credentials cannot be kept for a run: LOOMLOG_SECRET_KEY is not set here"


class ScheduleCredentials:
    """Gives runs of schedules the values of environment variables and of stored credentials, outside of the log."""

    def __init__(self, credentials: CredentialWriter | None, secrets: SecretRegistry, stored: CredentialValues) -> None:
        """`credentials` None: there is no key to keep them with."""
        self._credentials = credentials
        self._secrets = secrets
        self._stored = stored

    async def put(self, tenant: str, start: StartRun, variables: Mapping[str, str]) -> NoteRunEnded | None:
        """Store them: the values of variables, and of references like $cred:git. Return None, or what its schedule is
        told instead of the start, when one of them cannot be had.

        Raises Transient; the start of the run waits then.
        """
        schedule = start.options.trigger.partition("/")[2]
        user = CredentialUser(
            tenant=tenant,
            user=start.user_id,
            agent=start.agent,
            purpose=f"schedule {schedule}",
            run_id=start.run_id,
        )
        values = {}
        name = ""
        try:
            for name, source in sorted(variables.items()):
                if STORED.fullmatch(source):
                    values[name] = (await self._stored.resolve(source, user)).value
                else:
                    values[name] = self._secrets.resolve(source, Purpose.SCHEDULE_CREDENTIAL, tenant=tenant)
            if self._credentials is None:
                raise Permanent(NO_KEY, kind="refused")
            await self._credentials.put(tenant, start.run_id, values)
        except (SecretRefused, Permanent) as error:
            log.error("a schedule starts no run: %s: %s", name, error, extra=about(start.run_id, tenant))
            return NoteRunEnded(
                envelope=FROM_OUTBOX,
                name=schedule,
                run_id=start.run_id,
                status=REFUSED,
                code=NO_CREDENTIAL,
                message=f"user_credentials.{name}: {error}",
            )
        return None
