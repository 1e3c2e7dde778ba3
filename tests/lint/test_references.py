"""The page of families: what a declaration says is on it, and nothing of a family that is not there."""

import pytest

from loomlog.services.api.metrics import Metrics
from loomlog.services.families.registry import ENVIRONMENT
from tests.lint import references
from tests.lint.references import Incomplete, families_page
from tests.services.entities import COUNTER


def test_a_family_is_on_the_page_with_operations_fields_and_scopes() -> None:
    text = "\n".join(families_page([COUNTER]))
    assert "## counter\n\nA counter that only grows.\n" in text
    assert "Tool of agents: `Counter`." in text
    assert "| `increment` | Add to a counter. | `POST /v1/_counter/increment` | runs:create | yes |" in text
    assert "| `ls` | List the aggregates, by id. | `GET /v1/_counter` | runs:read | yes |" in text
    assert "| `remaining` |" in text
    assert "`GET /v1/_counter/remaining?id=&of=` | substrate:tenant | yes |" in text
    assert "| `name` | string |" in text
    assert "| `by` | integer |" in text


def test_a_family_that_is_taken_away_leaves_nothing_on_the_page() -> None:
    without, with_counter = "\n".join(families_page([])), "\n".join(families_page([COUNTER]))
    assert "counter" not in without.lower()
    assert "No family of this installation is offered" in without
    assert "No family" not in with_counter


def test_pages_are_not_made_with_families_of_one_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "tests.services.entities")
    with pytest.raises(Incomplete, match=f"unset {ENVIRONMENT}"):
        references.pages()


def test_the_page_of_metrics_has_every_metric_that_an_api_exposes() -> None:
    page = references.pages()["METRICS.md"]
    names = {family.name for family in Metrics(version="1", commit="c")._registry.collect()}
    assert {name for name in names if f"`{name}`" not in page} == set()
