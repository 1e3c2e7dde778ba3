"""The block `secrets`: what the operator lets definitions and callers name, for which tenants and towards which hosts.

Before: the files. After: secret_registry.py.
"""

from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import HostName, TenantOrAll, WordList, configuration_block

SecretWord = Literal[
    "webhook", "webhook_credentials", "schedule_credentials", "callback", "memory_backend", "credential"
]
ALL_TENANTS = "*"
WORDS_WITH_HOSTS = frozenset({"callback", "memory_backend"})
"""Uses that send the secret, or what it signs, to an address of the one who names it."""


@configuration_block
class SecretBlock:
    """Value of secrets.<variable>: who may name the variable, and for what. Its value stays in the environment."""

    tenants: Annotated[WordList[TenantOrAll], Field(min_length=1)]
    uses: Annotated[WordList[SecretWord], Field(min_length=1)]
    hosts: WordList[HostName] = ()
    """Host names, in lower case; a use of WORDS_WITH_HOSTS is for these alone."""

    @property
    def lacks_hosts(self) -> bool:
        """Whether there is a use that needs hosts, and none is given."""
        return not self.hosts and not WORDS_WITH_HOSTS.isdisjoint(self.uses)
