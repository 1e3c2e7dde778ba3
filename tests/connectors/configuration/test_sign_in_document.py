import re
from pathlib import Path
from textwrap import dedent

import pytest

from loomlog.connectors.identity_providers.claims import SCOPES_OF_ACCESS
from tests.connectors.configuration.conftest import Folder

PAGE = (Path(__file__).parents[3] / "docs" / "SIGN_IN.md").read_text(encoding="utf-8")
EXAMPLES = [dedent(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_chapter_is_a_configuration_that_loads(folder: Folder, example: str) -> None:
    assert list(folder.load(example).configuration.issuers) == ["company"]


def test_the_chapter_names_the_scopes_of_each_access() -> None:
    assert len(EXAMPLES) == 3
    for access, scopes in SCOPES_OF_ACCESS.items():
        (row,) = re.findall(rf"^\| `{access}` \| (.*) \|$", PAGE, re.MULTILINE)
        assert set(re.findall(r"`([a-z:]+)`", row)) == scopes
