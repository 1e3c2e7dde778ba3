"""Given, when, then for the rules of identities; and commands with what most tests do not care about."""

from typing import Any

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.identity_commands import MintToken, RegisterUser, RetireToken, RotateToken
from loomlog.schemas.generated.values import AccessToken, CommandEnvelope
from loomlog.services.core.access.scopes import ADMIN, RUNS_READ
from loomlog.services.core.families import At, aggregate_id
from loomlog.services.families.identity import FAMILY
from loomlog.services.families.identity.state import Identity, Token

TENANT = "acme"
NOW_MS = 1_000_000


def envelope(tenant: str = TENANT) -> CommandEnvelope:
    return CommandEnvelope(command_id="c", tenant=tenant, subject="op")


def hashed(number: int) -> str:
    return f"{number:064x}"


def mint(name: str = "ci", number: int = 1, *, tenant: str = TENANT, **fields: Any) -> MintToken:
    """Return the command for a token; one with the scope of administrators is for the installation."""
    shared = fields.pop("supersede_shared", False)
    values = {
        "def_id": f"tok_{number}",
        "tenant": tenant,
        "subject": fields.get("user") or "ci",
        "scopes": (RUNS_READ,),
        "hashed": hashed(number),
        **fields,
    }
    is_admin = ADMIN in values["scopes"]
    token = AccessToken(name=name, **values)
    return MintToken(envelope=envelope("" if is_admin else tenant), token=token, supersede_shared=shared)


def rotate(name: str = "ci", number: int = 1, new: int = 2, *, tenant: str = TENANT, **fields: Any) -> RotateToken:
    return RotateToken(
        envelope=envelope(tenant),
        name=name,
        def_id=f"tok_{number}",
        new_def_id=f"tok_{new}",
        hashed=hashed(new),
        **fields,
    )


def retire(name: str = "ci", number: int = 1, *, tenant: str = TENANT, user: str = "") -> RetireToken:
    return RetireToken(envelope=envelope(tenant), name=name, user=user, def_id=f"tok_{number}")


def register(subject: str = "ada", **fields: Any) -> RegisterUser:
    values = {"access_mode": "tenant", "status": "active", **fields}
    return RegisterUser(envelope=envelope(), subject=subject, **values)


class Given:
    """The aggregate after these commands; `events` are those of the last one."""

    def __init__(self, *commands: Any, tenant: str = TENANT) -> None:
        self.state: Identity = FAMILY.rules.initial(aggregate_id(FAMILY.name, tenant, "00"))
        self.events: list[Any] = []
        for command in commands:
            assert not self.when(command).is_refused, self.events

    def when(self, command: Any, *, at_ms: int = NOW_MS) -> "Given":
        self.events = list(FAMILY.rules.decide(self.state, command, At(at_ms, caller="op")))
        for event in self.events:
            if not isinstance(event, CommandRefused):
                self.state = FAMILY.rules.evolve(self.state, event, at_ms)
        return self

    @property
    def is_refused(self) -> bool:
        return any(isinstance(event, CommandRefused) for event in self.events)

    @property
    def refusal(self) -> tuple[str, str]:
        """Code and sentence of the refusal."""
        (refused,) = self.events
        assert isinstance(refused, CommandRefused), refused
        return refused.code, refused.message

    def token(self, number: int = 1) -> Token:
        return self.state.tokens[f"tok_{number}"]

    def in_force(self, at_ms: int = NOW_MS) -> list[str]:
        return [one.def_id for one in self.state.tokens.values() if one.is_in_force(at_ms)]
