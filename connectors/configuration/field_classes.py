"""Class of each field of a definition: what a version that a run writes may have of it.

    Neutral    says what an agent does or how it is shown: any value
    Bound      limits: the same value or a smaller one
    Grant      gives an ability: nothing that its author or its origin lacks

A class is part of the field's annotation, so a field is declared and classed in one place. A test finds a field without
one. Not chosen: a table beside the blocks, which a new field would be missing from.

Before: the blocks. After: services/families/definition/attenuation.py, which compares with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


class Order(StrEnum):
    """How two values of a grant compare."""

    NAMES = "names"
    """Each name is among the others; `*` among them stands for all."""
    SWITCH = "switch"
    SAME = "same"
    """Only the same value: each one leads to something else."""
    CHOICE = "choice"
    """Names; none at all leaves the choice to the operator, and is neither more nor less than some."""
    TOOLS = "tools"
    CHANNELS = "channels"
    SKILLS = "skills"
    VOLUMES = "volumes"
    AUTHORSHIP = "authorship"
    EVALUATION = "evaluation"
    MODELS = "models"
    """All fields that choose a model, compared together."""
    CORE_BLOCKS = "core_blocks"
    INTERRUPTION = "interruption"
    CONSOLIDATION = "consolidation"
    RULES = "rules"
    """Rules for tool calls, which take away: those of the holder come first, and more may follow."""
    USER = "user"
    HOOKS = "hooks"
    HANDLERS = "handlers"
    EXPOSED = "exposed"
    HOST = "host"
    REFERENCES = "references"
    """References to credentials within texts."""
    UNSET = "unset"
    """What no agent has: set is more than not set."""


@dataclass(frozen=True, slots=True)
class Neutral:
    """Any value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit. `absent`: what a field means that is not set or 0; None: no limit. `counts_zero`: 0 is a limit like any
    other. `lifted_by`: the switch that takes the limit away. `words`: those of a limit that is no number, the narrowest
    first; the last one is that of a field that is not set.
    """

    absent: int | None = None
    counts_zero: bool = False
    lifted_by: str = ""
    words: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An ability. `held`: the ability of the author that must cover it (attenuation.py::Abilities), for kinds other
    than agents; empty: no agent has it. `of_origin`: whether the origin must have it too.
    """

    order: Order
    held: str = ""
    of_origin: bool = True


FieldClass = Neutral | Bound | Grant
NEUTRAL = Neutral()
BOUND = Bound()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassedField:
    """A field by the names that lead to it; `field_class` None: its author has forgotten it."""

    path: tuple[str, ...]
    field_class: FieldClass | None

    @property
    def name(self) -> str:
        """Name as a definition has it."""
        return ".".join(step.removesuffix("_") for step in self.path)


@cache
def list_classed_fields(block: type) -> tuple[ClassedField, ...]:
    """Return the fields of a block. Of a block within it those that it has, unless the block is classed as a whole."""
    return tuple(_iter_fields(block, ()))


def _iter_fields(block: type, above: tuple[str, ...]) -> Iterator[ClassedField]:
    for name, hint in get_type_hints(block, include_extras=True).items():
        if name.startswith("__"):
            continue
        path = (*above, name)
        metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        classes = [one for one in metadata if isinstance(one, Neutral | Bound | Grant)]
        inner = _inner_block(hint)
        if not classes and inner is not None:
            yield from _iter_fields(inner, path)
        else:
            yield ClassedField(path=path, field_class=classes[-1] if len(classes) == 1 else None)


def _inner_block(hint: Any) -> type | None:
    """Return the block that a field has, or may have."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _inner_block(get_args(hint)[0])
    if origin in (Union, UnionType):
        return next((block for part in get_args(hint) if (block := _inner_block(part)) is not None), None)
    return hint if isinstance(hint, type) and is_dataclass(hint) else None
