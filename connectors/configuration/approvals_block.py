"""The block approvals: rules for tool calls, of all tenants at the top of the file, or of one agent.

Rules are plain data here; schemas/approval_policy.py has their form and says what is wrong with them.

Before: the files, overlays of definitions. After: services/runtime/models/approval_policies.py pins them in runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import AfterValidator

from loomlog.connectors.configuration.field_types import Scope, configuration_block, to_json_value
from loomlog.schemas.approval_policy import PolicyError, parse_policy, policy_text


def _check_rules(rules: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    plain = tuple(map(to_json_value, rules))
    try:
        parse_policy({"rules": plain}, scopes=get_args(Scope))
    except PolicyError as error:
        raise ValueError(f"expected rules for tool calls: {error}") from error
    return plain


RuleList = Annotated[tuple[Mapping[str, Any], ...], AfterValidator(_check_rules)]


@configuration_block
class ApprovalsBlock:
    """Value of approvals and of agents.<name>.approvals."""

    rules: RuleList = ()

    @property
    def text(self) -> str:
        """The rules as canonical JSON; empty without any."""
        return policy_text(parse_policy({"rules": self.rules})) if self.rules else ""


def notify_secrets(rules: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str, str]]:
    """Yield the place of each rule that tells an address with a signature, the variable of the secret, the address."""
    for number, rule in enumerate(rules):
        notify = (rule.get("ask") or {}).get("notify") or {}
        if notify.get("secret_env"):
            yield number, notify["secret_env"], notify["url"]
