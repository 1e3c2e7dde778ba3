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
    access = "scope runs:create | `Counter` op `increment` |"
    assert f"| `counter.increment` | Add to a counter. | `POST /v1/_counter/increment` | {access}" in text
    assert "| `counter.ls` | List what there is of counter, by id. | `GET /v1/_counter` | scope runs:read |" in text
    assert "`GET /v1/_counter/remaining` | scope substrate:tenant | `Counter` op `remaining` |" in text
    assert "| `name` | text |" in text
    assert "| `by` | a whole number from -9223372036854775808 to 9223372036854775807 |" in text


def test_a_family_that_is_taken_away_leaves_nothing_on_the_page() -> None:
    without, with_counter = "\n".join(families_page([])), "\n".join(families_page([COUNTER]))
    assert "counter" not in without.lower()
    assert with_counter.startswith(without)


def test_pages_are_not_made_with_families_of_one_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "tests.services.entities")
    with pytest.raises(Incomplete, match=f"unset {ENVIRONMENT}"):
        references.pages()


def test_the_page_of_metrics_has_every_metric_that_an_api_exposes() -> None:
    page = references.pages()["METRICS.md"]
    names = {family.name for family in Metrics(version="1", commit="c")._registry.collect()}
    assert {name for name in names if f"`{name}`" not in page} == set()
