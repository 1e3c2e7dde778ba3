import pytest
from sqlalchemy import Column, Text

from loomlog.projections.tables import (
    EVERY_TENANT,
    InvalidPageToken,
    Json,
    define_table,
    in_scope,
    page_token,
    parse_page_token,
    parse_token_number,
)


class Thing:
    """Only the annotations of a row are read."""

    name: str
    size: int | None
    known: bool
    raw: bytes
    event: Json | None


def test_a_table_has_the_fields_of_its_row():
    table = define_table("things_for_a_test", Thing, key=["name"])
    try:
        assert [(c.name, str(c.type), c.nullable) for c in table.columns] == [
            ("name", "TEXT", False),
            ("size", "BIGINT", True),
            ("known", "BOOLEAN", False),
            ("raw", "BLOB", False),
            ("event", "JSON", True),
        ]
    finally:
        table.metadata.remove(table)


def test_a_tenant_is_a_condition_and_every_tenant_must_be_explicit():
    column = Column("tenant", Text)
    assert str(in_scope(column, "acme")) == "tenant = :tenant_1"
    assert str(in_scope(column, EVERY_TENANT)) == "true"
    assert str(in_scope(column, "")) == "tenant = :tenant_1"


def test_a_page_token_is_parsed_into_its_parts():
    token = page_token(1_780_000_000_000, "r_01-a", 256)
    assert parse_page_token(token, 3) == ["1780000000000", "r_01-a", "256"]
    assert parse_token_number("12") == 12


@pytest.mark.parametrize("token", ["", "###", "YQ", page_token(1), page_token(1, 2, 3)])
def test_a_foreign_page_token_is_refused(token):
    with pytest.raises(InvalidPageToken):
        parse_page_token(token, 2)


def test_a_part_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidPageToken):
        parse_token_number("1e5")
