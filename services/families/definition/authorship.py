"""Rules about who may write a line of definitions, and who may change what is active of one, for every transport.

    outside a run       everything of its tenant; a caller that is confined to its own user, only what is its own
    an agent            the names of its scopes of authorship; of a skill, those that it may use
    to make active      what it or an agent that it made has made, itself, or with the word `promote` anything of these

What a version may have is for attenuation.py to say.

Before: operations.py, volumes.py, batches.py. After: table.py has the lines.
"""

from collections.abc import Mapping

from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.state import Line
from loomlog.services.families.definition.table import SHARED, DefinitionTable

ANY, SELF, DESCENDANTS, NAMED, PROMOTE = "any", "self", "descendants", "named:", "promote"
AGENT, SCHEDULE, SKILL = "agent", "schedule", "skill"
SCOPE_FIELDS: Mapping[str, str] = {
    "agent": "agent_def_scopes",
    "schedule": "schedule_def_scopes",
    "a2aagent": "a2a_agent_def_scopes",
    "a2aservercard": "a2a_server_card_def_scopes",
    "volume": "volume_def_scopes",
}
"""Kinds with scopes of authorship of their own, and the agent's key for them (reference runtime 4.5)."""
OPERATORS_ONLY = frozenset({"webhook", "memorybackend", "documentsource"})
"""Kinds that agents may not write."""


class Authorship:
    """The rules over the lines that this process has read."""

    def __init__(self, table: DefinitionTable) -> None:
        self._table = table

    def require(self, kind: str, name: str, author: Author, *, activates: bool, is_of_run: bool = False) -> None:
        """Raise Refused(scope_denied) when the author may not write the line, or not what is active of it.

        `is_of_run`: what is written ends with the tree of the author's run, and no other run sees it.
        """
        if author.is_isolated and not is_of_run:
            self._require_own_user(kind, name, author)
        if author.grants is None:
            return
        if kind in OPERATORS_ONLY:
            raise _denied(f"agents may not write a {kind}: operators do")
        if kind == SKILL and not author.allows_skill(name):
            raise _denied(f"the agent's skills do not include {name}")
        field = SCOPE_FIELDS.get(kind, "")
        if field and not self._may_author(kind, name, author, _scopes(author, field)):
            raise _denied(f"the agent may not write {name}: its {field} are {_shown(author, field)}")
        field = field or SCOPE_FIELDS[AGENT]
        is_free = not activates or is_of_run or PROMOTE in _scopes(author, field)
        if not is_free and not self._is_own(kind, name, author):
            raise _denied(
                f"{name} was made by others: to change which version of it is active takes {PROMOTE} among the {field} "
                f"of the agent, which are {_shown(author, field)}"
            )

    def _require_own_user(self, kind: str, name: str, author: Author) -> None:
        """Refuse what is for the whole tenant: a user that is confined has its own schedules only."""
        line = self._table.line(kind, author.tenant, name)
        is_own = self._is_new(kind, name, author.tenant) or (line is not None and line.made_by == author.subject)
        if kind != SCHEDULE or not is_own:
            text = f"{kind} {name} is for the whole tenant, and {author.subject[:80]} is confined to what is its own"
            raise _denied(text)

    def _may_author(self, kind: str, name: str, author: Author, scopes: tuple[str, ...]) -> bool:
        """Whether scopes of authorship cover a name: any, self, named:<name>, or descendants: what the agent, or an
        agent that it made, has made.
        """
        if ANY in scopes or f"{NAMED}{name}" in scopes or (SELF in scopes and name == author.agent):
            return True
        return DESCENDANTS in scopes and self._is_made_by(kind, name, author)

    def _is_own(self, kind: str, name: str, author: Author) -> bool:
        return (kind == AGENT and name == author.agent) or self._is_made_by(kind, name, author)

    def _is_made_by(self, kind: str, name: str, author: Author) -> bool:
        """Whether the agent makes it now, or has made it, or an agent has that it made."""
        if self._is_new(kind, name, author.tenant):
            return True
        line = self._table.line(kind, author.tenant, name)
        made_by, seen = line.made_by_agent if line is not None else "", set[str]()
        while made_by and made_by not in seen:
            if made_by == author.agent:
                return True
            seen.add(made_by)
            maker = self._table.line(AGENT, author.tenant, made_by)
            made_by = maker.made_by_agent if maker is not None else ""
        return False

    def _is_new(self, kind: str, name: str, tenant: str) -> bool:
        """Whether the name means nothing to the tenant yet, not even a definition of a file or one that all share."""
        lines = (self._table.line(kind, owner, name) for owner in (tenant, SHARED))
        return (kind, name) not in self._table.files and not any(map(_has_versions, lines))


def _has_versions(line: Line | None) -> bool:
    return line is not None and bool(line.versions)


def _scopes(author: Author, field: str) -> tuple[str, ...]:
    return tuple((author.grants or {}).get(field) or ())


def _shown(author: Author, field: str) -> str:
    return ", ".join(_scopes(author, field)) or "none"


def _denied(message: str) -> Refused:
    return Refused("scope_denied", message)
