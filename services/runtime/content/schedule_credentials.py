"""Credentials that runs of schedules have: values of environment variables and stored ones, outside of the log.

Before: the owner of a schedule, when it starts a run. After: run_credentials.py.
"""

import logging
from collections.abc import Mapping

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRefused, SecretRegistry
from loomlog.connectors.process.logs import about
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.services.families.identity.credentials import PREFIX as REFERENCE_PREFIX
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.runtime.content.run_credentials import Credentials

log = logging.getLogger(__name__)


class ScheduleCredentials:
    """Gives runs of schedules the values of environment variables and of stored credentials, outside of the log."""

    def __init__(self, credentials: Credentials, secrets: SecretRegistry, stored: CredentialReader) -> None:
        self._credentials = credentials
        self._secrets = secrets
        self._stored = stored

    async def put(self, tenant: str, start: StartRun, variables: Mapping[str, str]) -> None:
        """Store them: the values of variables, and of references like $cred:git.

        Raises ConnectorError; the start of the run waits then.
        """
        run_id = start.run_id
        references = {name: one for name, one in variables.items() if one.startswith(REFERENCE_PREFIX)}
        values = await self._stored.values(tenant, references, user=start.user_id, agent=start.agent)
        for name in references.keys() - values.keys():
            text = "the run %s has no credential %s: %s is not stored"
            log.error(text, run_id, name, references[name], extra=about(run_id, tenant))
        for name, variable in variables.items() - references.items():
            try:
                values[name] = self._secrets.resolve(variable, Purpose.SCHEDULE_CREDENTIAL, tenant=tenant)
            except SecretRefused as refused:
                log.error("the run %s has no credential %s: %s", run_id, name, refused, extra=about(run_id, tenant))
        await self._credentials.put(tenant, run_id, values)
