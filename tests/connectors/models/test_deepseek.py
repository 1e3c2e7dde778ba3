import pytest

from loomlog.connectors.models.deepseek import DEEPSEEK, non_thinking_sibling
from loomlog.connectors.models.openai import OpenAiModel


@pytest.mark.parametrize(
    ("model", "sibling"),
    [
        ("deepseek-chat", "deepseek-chat"),
        ("deepseek-reasoner", "deepseek-chat"),
        ("deepseek-v4-flash", "deepseek-chat"),
        ("deepseek-pro", "deepseek-chat"),
        ("deepseek-r1", "deepseek-chat"),
    ],
)
def test_thinking_models_have_a_sibling_that_does_not_think(model: str, sibling: str) -> None:
    assert non_thinking_sibling(model) == sibling


async def test_its_capabilities() -> None:
    model = OpenAiModel(provider="deepseek", api_key="k", dialect=DEEPSEEK)
    assert model.capabilities.supports_thinking
    assert not model.capabilities.supports_vision
    await model.close()
