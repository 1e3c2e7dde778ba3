"""Selection of the key for a model call, which also decides who pays for it.

A provider names the variable of its key (`api_key_env`); a credential under that name, wherever it is kept, is a key
for that provider. The sources are tried in order and the first that has the name wins:

    run                    a credential that came with the request of the run, or of the root run of its tree
    agent, user, tenant    a stored credential, of the run's agent, its user or its tenant
    operator               the key this process has from its environment, when the run may use it

Without one the call fails for good: another try would end the same way, and a caller who must not spend the operator's
money may not want another model. A provider without a key of any kind is called without.

The key is looked up at each call, so that it is not stored with the run: values are in the stores of
credentials and in the request to the driver, and in nothing that is written, shown or traced.

Before: model_calls.py. After: the drivers send it instead of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Secretive
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.subagents.children import root_of
from loomlog.services.core.run.turns.fallback import OPERATOR_KEY_RESTRICTED

RUN, OPERATOR = "run", "operator"
"""Names of the sources in the log and in the clients."""
SHARED_SOURCES = frozenset({"", OPERATOR})
"""Sources whose rate limits and balances are shared by all runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Credentials of one kind of owner. `scope` identifies the owner: for those of a run, its id."""

    source: str
    scope: str
    values: Mapping[str, str] = field(repr=False)


class ProviderKey(Secretive, frozen=True, kw_only=True):
    """Key of one call. `value` empty: the driver's own, or none at all."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"value"})

    source: str = ""
    scope: str = ""
    value: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether the provider's answers about this key apply to every run."""
        return self.source in SHARED_SOURCES


NO_KEY = ProviderKey()
OPERATOR_KEY = ProviderKey(source=OPERATOR)


def resolve_key(
    provider: str, name: str, sources: Sequence[KeySource], *, operator_has_key: bool, may_use_operator_key: bool
) -> ProviderKey:
    """Return the key of one call. `name` is the provider's `api_key_env`, empty for one that needs none.

    Raises Permanent (operator_key_restricted, or refused when there is no key).
    """
    if not name:
        return NO_KEY
    for source in sources:
        value = source.values.get(name, "")
        if value:
            return ProviderKey(source=source.source, scope=source.scope, value=value)
    if not may_use_operator_key:
        raise Permanent(
            f"{provider}: operator key forbidden: this run may not use the operator's key and brings none of its own;"
            f" send a key of yours with the request, as the credential {name}",
            kind=OPERATOR_KEY_RESTRICTED,
        )
    if not operator_has_key:
        raise Permanent(
            f"{provider}: the operator has no key for this provider and the run brings none;"
            f" send one with the request, as the credential {name}",
            kind="refused",
        )
    return OPERATOR_KEY


def run_key_source(facts: RunFacts, values: Mapping[str, str]) -> KeySource:
    """Return the credentials of a run's tree as a source."""
    return KeySource(source=RUN, scope=root_of(facts), values=values)
