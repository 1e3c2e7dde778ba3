"""What a caller may wish of an agent: fewer tools, never more, and other sampling, field by field.

Before: desk.py has resolved the agent. After: the run is pinned to the result.
"""

from dataclasses import replace

from schemas.run_commands import StartRun
from schemas.values import AgentDefinition, Sampling


def narrowed(definition: AgentDefinition, command: StartRun) -> AgentDefinition:
    """The definition with the caller's wishes: tools only ever fewer, sampling field by field."""
    if command.tools is None and command.sampling is None:
        return definition
    tools = definition.tools if command.tools is None else granted_by_both(definition.tools, command.tools)
    return replace(definition, tools=tools, sampling=merged(definition.sampling, command.sampling))


def granted_by_both(granted: tuple[str, ...], wished: tuple[str, ...]) -> tuple[str, ...]:
    """What both lists of names and trailing-star patterns grant; of two patterns the narrower."""
    both = [entry for entry in granted if any(_covers(wish, entry) for wish in wished)]
    both += [wish for wish in wished if any(_covers(entry, wish) for entry in granted)]
    return tuple(dict.fromkeys(both))


def _covers(pattern: str, name: str) -> bool:
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def merged(base: Sampling | None, over: Sampling | None) -> Sampling | None:
    """`over` wins in every field it sets."""
    if base is None or over is None:
        return over or base
    return Sampling(
        temperature=base.temperature if over.temperature is None else over.temperature,
        top_p=base.top_p if over.top_p is None else over.top_p,
        top_k=base.top_k if over.top_k is None else over.top_k,
        frequency_penalty=base.frequency_penalty if over.frequency_penalty is None else over.frequency_penalty,
        presence_penalty=base.presence_penalty if over.presence_penalty is None else over.presence_penalty,
        seed=base.seed if over.seed is None else over.seed,
        stop=over.stop or base.stop,
    )
