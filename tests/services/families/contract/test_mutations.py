"""Whatever is broken in the kit or in a family, the contract suite finds it."""

import inspect

import pytest
from hypothesis import Phase

from tests.services.families.contract import checks
from tests.services.families.contract.mutations import MUTATIONS, Mutation
from tests.services.stream.entities import world

MISFITS = (TypeError, AttributeError, NameError, ImportError)


async def hold(mutation: Mutation) -> None:
    done = mutation.check(mutation.case)
    if inspect.isawaitable(done):
        await done


@pytest.mark.parametrize("name", MUTATIONS)
async def test_the_contract_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "PATIENCE_S", 0.3)  # what is lost is waited for in vain
    monkeypatch.setattr("tests.services.families.contract.world.PATIENCE_S", 0.3)
    monkeypatch.setattr(checks, "PHASES", (Phase.generate,))  # that it fails is enough
    mutation = MUTATIONS[name]
    with mutation.breaks(), pytest.raises(Exception) as broken:  # noqa: PT011 - any, but for those of a misfit
        await hold(mutation)
    assert not isinstance(broken.value, MISFITS), f"the mutation does not fit the product of today: {broken.value!r}"


@pytest.mark.parametrize("name", [name for name, one in MUTATIONS.items() if one.breaks.__name__ != "nullcontext"])
async def test_the_patches_are_gone_afterwards(name: str) -> None:
    with MUTATIONS[name].breaks():
        pass
    await hold(MUTATIONS[name])
