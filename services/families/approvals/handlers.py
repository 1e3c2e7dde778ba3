"""The handlers of the operations on a tenant's rules.

Before: services.py. After: the owner of the rules; every runtime pins them in the runs that it starts.
"""

import orjson

from loomlog.connectors.configuration.secret_registry import SecretRefused, SecretRegistry, require_rule_signatures
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.approval_policy import PolicyError, parse_policy, policy_text
from loomlog.schemas.generated.approvals_commands import SetPolicy
from loomlog.schemas.generated.approvals_events import PolicySet
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused
from loomlog.services.families.approvals import AGGREGATE, NAME, api
from loomlog.services.families.approvals.decide import ANY_VERSION
from loomlog.services.families.approvals.items import VERSION_ITEM, version_id
from loomlog.services.families.approvals.state import TenantPolicy
from loomlog.services.families.opening import FamilyContext
from loomlog.services.families.operation import ask_owner, read_rows

WAIT_S = 10.0


class PolicyHandlers:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(self, context: FamilyContext, secrets: SecretRegistry) -> None:
        """`secrets`: which of them may sign what rules send."""
        self._commands, self._reads, self._secrets = context.commands, context.reads, secrets

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.POLICY: self.policy,
            api.SET_POLICY: self.set_policy,
            api.VERSIONS: self.versions,
            api.ROLL_BACK: self.roll_back,
        }

    async def policy(self, call: Call[api.PolicyRead]) -> Answer[api.PolicyVersion]:
        """Return the rules in force, or those of a version."""
        if call.input.version:
            return Answer(value=_version_of(await self._version_row(call, call.input.version)))
        caller = call.caller
        row = await read_rows(self._reads.show(NAME, caller.tenant, AGGREGATE, positions=caller.positions))
        policy: TenantPolicy = TenantPolicy() if row is None else row.entity.state
        return Answer(
            value=api.PolicyVersion(
                version=policy.version,
                sha256=policy.sha256,
                rules=_rules_of(policy.text),
                by=policy.by,
                at=format_rfc3339(policy.at_ms) if policy.at_ms else None,
                restores=0,
            )
        )

    async def set_policy(self, call: Call[api.PolicySetInput]) -> Answer[api.PolicyVersion]:
        """Put rules in force."""
        try:
            text = policy_text(parse_policy({"rules": call.input.rules}, scopes=SCOPES))
            require_rule_signatures(self._secrets, call.input.rules, call.caller.tenant)
        except (PolicyError, SecretRefused) as error:
            raise Refused("bad_request", str(error)) from error
        replaces = call.input.replaces
        return await self._set(call, text, replaces=ANY_VERSION if replaces is None else replaces)

    async def versions(self, call: Call[NoInput]) -> Answer[api.PolicyVersions]:
        """Return the newest versions."""
        caller = call.caller
        page = await read_rows(
            self._reads.list_items(
                NAME, caller.tenant, VERSION_ITEM, limit=api.VERSIONS_MAX, positions=caller.positions
            )
        )
        shown = [_version_of(row) for row in page.rows]
        rows = [
            api.PolicyVersionRow(
                version=one.version, sha256=one.sha256, by=one.by, at=one.at or "", restores=one.restores
            )
            for one in shown
        ]
        return Answer(value=api.PolicyVersions(versions=rows))

    async def roll_back(self, call: Call[api.PolicyRollBack]) -> Answer[api.PolicyVersion]:
        """Put the rules of an earlier version in force again."""
        version = call.input.version
        row = await self._version_row(call, version)
        return await self._set(call, orjson.loads(row.document)["text"], restores=version)

    async def _version_row(self, call: Call[api.PolicyRead] | Call[api.PolicyRollBack], version: int) -> ItemRow:
        caller = call.caller
        rows = await read_rows(
            self._reads.load_items(NAME, caller.tenant, VERSION_ITEM, [version_id(version)], positions=caller.positions)
        )
        if not rows:
            raise Refused("not_found", f"there is no version {version} of the rules")
        return rows[0]

    async def _set(
        self,
        call: Call[api.PolicySetInput] | Call[api.PolicyRollBack],
        text: str,
        *,
        replaces: int = ANY_VERSION,
        restores: int = 0,
    ) -> Answer[api.PolicyVersion]:
        command = SetPolicy(envelope=call.envelope(), text=text, replaces=replaces, restores=restores)
        answer = await ask_owner(self._commands, command, wait_s=WAIT_S)
        event = answer.events[-1]
        if isinstance(event, CommandRefused):
            raise Refused(event.code, event.message)
        assert isinstance(event, PolicySet)
        value = api.PolicyVersion(
            version=event.version,
            sha256=event.sha256,
            rules=_rules_of(event.text),
            by=event.by,
            at=format_rfc3339(event.at_ms),
            restores=event.restores,
        )
        return Answer(value=value, positions=(answer.position,))


def _version_of(row: ItemRow) -> api.PolicyVersion:
    event = orjson.loads(row.document)
    return api.PolicyVersion(
        version=event["version"],
        sha256=event["sha256"],
        rules=_rules_of(event["text"]),
        by=event["by"],
        at=format_rfc3339(event["at_ms"]),
        restores=event["restores"],
    )


def _rules_of(text: str) -> list[dict[str, object]]:
    rules: list[dict[str, object]] = orjson.loads(text)["rules"] if text else []
    return rules
