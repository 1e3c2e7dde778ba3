"""Which key a model call is made with, and who pays for it.

A provider names the variable of its key (`api_key_env`); a credential under that name, wherever it is kept, is a key
for that provider. The sources are asked in order and the first that has the name wins:

    run         a credential that came with the request of the run, or of the run its tree began with
    operator    the key this process has from its environment, when the run may use it

Where none has it the call fails for good: another try would end the same way, and another model may not be what whoever
must not spend the operator's money wanted. A provider without a key of any kind is called without.

Looked for at each call, so that a key is nowhere kept beside the run: values are in the store of the run's credentials
and in the request to the driver, and in nothing that is written, shown or traced.

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
"""Sources, as the log and the clients name them."""
SHARED_SOURCES = frozenset({"", OPERATOR})
"""Sources whose rate limits and balances are everybody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Credentials of one kind of owner. `scope` says whose they are: for those of a run, its id."""

    source: str
    scope: str
    values: Mapping[str, str] = field(repr=False)


class ProviderKey(Secretive, frozen=True, kw_only=True):
    """What one call is made with. `value` empty: the driver's own, or none at all."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"value"})

    source: str = ""
    scope: str = ""
    value: str = ""

    @property
    def is_shared(self) -> bool:
        """What the provider says of this key holds for every run."""
        return self.source in SHARED_SOURCES


NO_KEY = ProviderKey()
OPERATOR_KEY = ProviderKey(source=OPERATOR)


def resolve_key(
    provider: str, name: str, sources: Sequence[KeySource], *, operator_has_key: bool, may_use_operator_key: bool
) -> ProviderKey:
    """The key of one call. `name` is the provider's `api_key_env`, empty for one that needs none.

    Raises Permanent (operator_key_restricted, or refused when nobody has a key).
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
    """The credentials of a run's tree as a source."""
    return KeySource(source=RUN, scope=root_of(facts), values=values)
