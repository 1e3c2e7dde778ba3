import pytest

from loomlog.schemas.generated.values import AgentDefinition, Compaction, Sampling
from loomlog.services.core.run.lifecycle.fork import merge_sampling
from loomlog.services.runtime.run.definition_overrides import apply_overrides, intersect_grants
from tests.services.runtime.given import started


def test_tools_only_ever_become_fewer() -> None:
    definition = AgentDefinition(name="a", provider="p", model="m", tools=("Read", "Bash"))
    assert apply_overrides(definition, started("r_x")).tools == ("Read", "Bash")
    assert apply_overrides(definition, started("r_x", tools=())).tools == ()
    assert apply_overrides(definition, started("r_x", tools=("Bash", "Write"))).tools == ("Bash",)


@pytest.mark.parametrize(
    ("granted", "wished", "both"),
    [
        (("*",), ("Read",), ("Read",)),
        (("Read", "Bash"), ("*",), ("Read", "Bash")),
        (("mcp__*", "Read"), ("mcp__git__log", "Write"), ("mcp__git__log",)),
        (("mcp__*",), ("mcp__git__*",), ("mcp__git__*",)),
        (("mcp__git__*",), ("mcp__*",), ("mcp__git__*",)),
        (("mcp__a__*",), ("mcp__b__*",), ()),
        (("client__*",), ("client:click",), ("client__click",)),
        (("client__click", "client__add"), ("client:*",), ("client__click", "client__add")),
        (("*",), (), ()),
        ((), ("*",), ()),
        (("Read",), ("Rea",), ()),
    ],
)
def test_tools_given_by_pattern_are_narrowed_too(
    granted: tuple[str, ...], wished: tuple[str, ...], both: tuple[str, ...]
) -> None:
    assert intersect_grants(granted, wished) == both


def test_sampling_is_merged_field_by_field() -> None:
    base = Sampling(temperature=0.5, top_k=3, stop=("a",))
    assert merge_sampling(base, None) == base
    assert merge_sampling(None, base) == base
    assert merge_sampling(None, None) is None
    over = Sampling(temperature=0.0, top_p=0.1)
    assert merge_sampling(base, over) == Sampling(temperature=0.0, top_p=0.1, top_k=3, stop=("a",))


def test_compaction_is_merged_field_by_field() -> None:
    definition = AgentDefinition(name="a", provider="p", model="m", compaction=Compaction(enabled=True, keep_last_n=6))
    wished = apply_overrides(definition, started("r_x", compaction=Compaction(keep_last_n=2, keep_first=False)))
    assert wished.compaction == Compaction(enabled=True, keep_last_n=2, keep_first=False)
    assert apply_overrides(definition, started("r_x")) == definition
