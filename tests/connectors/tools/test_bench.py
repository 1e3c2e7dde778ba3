from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.bench import ANSWER_CHARACTERS, BenchTool, derive_answer
from tests.connectors.tools.given import context


async def test_the_answer_depends_on_the_key_alone() -> None:
    first, again, other = [
        await BenchTool().call({}, context(idempotency_key=key, run_id=run))
        for key, run in (("a", "1"), ("a", "2"), ("b", "1"))
    ]
    assert first == again
    assert first.text == derive_answer("a")
    assert other.text != first.text
    assert len(first.text) == ANSWER_CHARACTERS
    assert first.text.isprintable()
    assert not first.is_error
    assert BenchTool().effect_class({}) is EffectClass.PURE


async def test_arguments_are_refused() -> None:
    result = await BenchTool().call({"size": 5}, context())
    assert result.is_error
    assert "takes no arguments" in result.text
