import asyncio

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import TextDelta
from loomlog.services.families.memory.commands.evaluation.model_calls import (
    PARALLEL,
    PromptedModel,
    gather_limited,
    with_terms,
)
from tests.services.families.memory.commands.evaluation.corpora import ScriptedModel


def prompted(model, **changes) -> PromptedModel:
    fields = {"name": "m", "prompt": "p", "effort": "", "max_tokens": 0, "sampling": None, "timeout_s": 1.0}
    return PromptedModel(**({"model": model, "price": None, "currency": ""} | fields | changes))


class Stalling(ScriptedModel):
    async def stream(self, request):
        self.requests.append(request)
        yield TextDelta(text="a")
        await asyncio.sleep(10)


class Broken(ScriptedModel):
    async def stream(self, request):
        self.requests.append(request)
        yield TextDelta(text="a")


@pytest.mark.parametrize(("kind", "text"), [(Stalling, "within 0.01 s"), (Broken, "broke off")])
async def test_an_answer_that_does_not_end_is_asked_for_three_times(monkeypatch, kind, text):
    monkeypatch.setattr("loomlog.services.families.memory.commands.evaluation.model_calls.FIRST_DELAY_S", 0.0)
    model = kind(lambda request: "")
    with pytest.raises(Transient, match=text):
        await prompted(model, timeout_s=0.01).ask("q")
    assert len(model.requests) == 3
    assert len({one.call_id for one in model.requests}) == 1


async def test_usage_adds_up():
    one = prompted(ScriptedModel(lambda request: "yes"))
    assert [await one.ask("a"), await one.ask("b")] == ["yes", "yes"]
    assert (one.usage.input_tokens, one.usage.output_tokens, one.calls, one.cost_micros) == (20, 10, 2, None)


async def test_results_are_in_order_and_calls_are_limited():
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    assert await gather_limited(range(10), work) == [*range(10)]
    assert most == PARALLEL


@pytest.mark.parametrize(
    ("prompt", "terms", "expected"),
    [
        ("Find.", (), "Find."),
        ("Find.", ("a", "b"), "Find.\n\nTypes of things in use: a, b"),
        ("Find {{memory:ontology}}.", ("a",), "Find Types of things in use: a."),
        ("Find {{memory:ontology}}{{memory:user_info}}.", (), "Find ."),
        (r"Say \{{memory:user_info}}.", (), "Say {{memory:user_info}}."),
    ],
)
def test_terms_go_where_the_prompt_has_the_ontology(prompt, terms, expected):
    assert with_terms(prompt, terms) == expected
