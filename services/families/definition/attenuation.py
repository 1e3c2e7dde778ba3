"""What a version that a run writes has and may not have: more than its author, or more than what it is made from. Pure.

Each field of a definition has a class (connectors/configuration/field_classes.py). A run writes as its agent, so a
version of an agent is compared with the agent, field by field; one of another kind with what the agent can do
(`Abilities`), because it has no fields of these names. What lies between two holders passes both. Fields of an agent
that are not set are narrowed to the author's before.

Before: operations.py and volumes.py, for every version that a run writes or makes active. After: orders.py compares
the values of one field.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.field_classes import Bound, ClassedField, Grant, Order, list_classed_fields
from loomlog.services.families.definition.orders import ALL, JOINT, Side, beyond, list_shown

SPAWN_TOOL = "Agent"
EXCESSES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A field of a version that exceeds a holder."""

    field: str
    beyond: tuple[str, ...]
    """What the holder lacks."""
    holder: str
    """The author, or what it is made from, for people."""
    has: str
    """What the holder has."""

    def __str__(self) -> str:
        return f"{self.field}: {', '.join(self.beyond[:EXCESSES_SHOWN])} exceeds {self.holder}, which has {self.has}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What the agent of a run can do. `block` is its definition, with the tools that the run has."""

    agent: str
    block: AgentBlock
    user: str = ""
    user_tier: str = ""
    hosts: tuple[str, ...] = ()
    """Hosts that the run may reach."""
    is_narrowed: bool = False
    """Its caller has taken tools away, which another run of the agent would have."""
    has_narrowed_hosts: bool = False
    """Its caller has taken hosts away, which a run that it does not start itself would reach."""
    held: Mapping[str, Any] = field(init=False)
    """By the names that the classes of fields use."""

    def __post_init__(self) -> None:
        held = {
            "tools": self.block.tools,
            "channels_publish": self.block.channels.publish,
            "agents": self._startable(),
            "user": self.user or None,
            "user_tier": self.user_tier,
            "hosts": self.hosts,
        }
        object.__setattr__(self, "held", held)

    def _startable(self) -> tuple[str, ...]:
        """Return the agents that it may start other than by a call of its own, where its hosts go along."""
        if self.has_narrowed_hosts:
            return ()
        if not beyond(Order.TOOLS, Side(value=(SPAWN_TOOL,)), Side(value=self.block.tools)):
            return (ALL,)
        return () if self.is_narrowed else (self.agent,)


def exceeding(block: type, name: str, version: Any, author: Abilities | None, origin: Any = None) -> tuple[Excess, ...]:
    """Return what a version has that its author lacks, or its origin. `version` and `origin` are of the type `block`.

    An author of None is bound by nothing; so is a version without an origin by that.
    """
    return tuple(_iter_excesses(block, name, version, author, origin))


def narrowed(version: AgentBlock, name: str, author: Abilities, overlay: Collection[str]) -> AgentBlock:
    """Return the version of an agent with the author's value in each field that it does not set, where the default is
    more than the author has: an agent that says nothing of its volumes does not ask for others. Tools are not given so.

    `overlay`: the fields that its author has written, which are as they are.
    """
    unset = AgentBlock()
    models: list[ClassedField] = []
    for one in list_classed_fields(AgentBlock):
        if one.name.partition(".")[0] in overlay:
            continue
        if isinstance(one.field_class, Grant) and one.field_class.order in JOINT:
            if one.field_class.order is Order.MODELS:
                models.append(one)
        elif _value(version, one.path) == _value(unset, one.path) and _exceeds(one, version, name, author):
            version = _replaced(version, one.path, _value(author.block, one.path))
    is_chosen = any(_value(version, one.path) != _value(unset, one.path) for one in models)
    if models and not is_chosen and _exceeds(models[0], version, name, author):
        for one in models:
            version = _replaced(version, one.path, _value(author.block, one.path))
    return version


def _exceeds(one: ClassedField, version: AgentBlock, name: str, author: Abilities) -> bool:
    return any(_excess(one, _side(version, name, one), _author_side(AgentBlock, one, author), author.agent))


def _replaced(block: Any, path: Sequence[str], value: Any) -> Any:
    first, *rest = path
    return replace(block, **{first: _replaced(getattr(block, first), rest, value) if rest else value})


def _iter_excesses(block: type, name: str, version: Any, author: Abilities | None, origin: Any) -> Iterator[Excess]:
    compared: set[Order] = set()
    for one in list_classed_fields(block):
        if isinstance(one.field_class, Grant) and one.field_class.order in JOINT:
            if one.field_class.order in compared:
                continue
            compared.add(one.field_class.order)
        requested = _side(version, name, one)
        if author is not None:
            yield from _excess(one, requested, _author_side(block, one, author), f"the agent {author.agent}")
        if origin is not None and (not isinstance(one.field_class, Grant) or one.field_class.of_origin):
            yield from _excess(one, requested, _side(origin, name, one), "the version it is made from")


def _excess(one: ClassedField, requested: Side, holder: Side | None, whose: str) -> Iterator[Excess]:
    if holder is None:
        return
    match one.field_class:
        case Grant(order=order):
            missing = beyond(order, requested, holder)
            has = list_shown(order, holder)
        case Bound() as bound:
            missing, has = _beyond_bound(bound, requested, holder)
        case _:
            return
    if missing:
        yield Excess(field=one.name, beyond=missing, holder=whose, has=has)


def _side(block: Any, name: str, one: ClassedField) -> Side:
    return Side(value=_value(block, one.path), name=name, block=block)


def _author_side(block: type, one: ClassedField, author: Abilities) -> Side | None:
    """Return what the author has of a field; None for a limit that an agent has nothing of."""
    if block is AgentBlock:
        return _side(author.block, author.agent, one)
    if not isinstance(one.field_class, Grant):
        return None
    return Side(value=author.held.get(one.field_class.held), name=author.agent, block=author.block)


def _value(block: Any, path: Sequence[str]) -> Any:
    return reduce(lambda value, step: None if value is None else getattr(value, step), path, block)


def _beyond_bound(bound: Bound, requested: Side, holder: Side) -> tuple[tuple[str, ...], str]:
    if bound.words:
        last = bound.words[-1]
        asked, most = (one.value if one.value in bound.words else last for one in (requested, holder))
        is_more = bound.words.index(asked) > bound.words.index(most)
        return ((str(asked),) if is_more else ()), f"at most {most}"
    limit, most = _limit(bound, requested), _limit(bound, holder)
    is_more = most is not None and (limit is None or limit > most)
    return (("no limit" if limit is None else str(limit),) if is_more else ()), f"at most {most}"


def _limit(bound: Bound, side: Side) -> int | None:
    """Return a limit as a number; None when there is none."""
    if bound.lifted_by and getattr(side.block, bound.lifted_by):
        return None
    value: int | None = side.value
    if value is None or (value == 0 and not bound.counts_zero):
        return bound.absent
    return value
