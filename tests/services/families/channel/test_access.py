"""Who may publish to a channel: the table of origins and declarations."""

import re
from pathlib import Path

import pytest

from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.access import may_publish, require_publisher
from loomlog.services.families.channel.caller import Declaration, Origin

DECLARATIONS = {
    "tenant": Declaration(name="team", scope="tenant", tenant="acme"),
    "user": Declaration(name="inbox", scope="user", tenant="acme"),
    "agent": Declaration(name="notes", scope="agent", tenant="acme"),
    "global": Declaration(name="plaza", scope="global"),
    "global any": Declaration(name="wall", scope="global", publisher="any"),
    "system": Declaration(name="beat", scope="global", publisher="system"),
    "system of users": Declaration(name="_system/interrupts/pending", scope="user", publisher="system"),
    "system by its name": Declaration(name="_system/x", scope="tenant", publisher=""),
}
TABLE = """
                    SYSTEM ADMINISTRATOR MEMBER AGENT DELIVERY EVENT
tenant              yes    yes           yes    yes   yes      yes
user                yes    yes           yes    yes   yes      yes
agent               yes    yes           yes    yes   yes      yes
global              yes    yes           no     yes   yes      yes
global any          yes    yes           yes    yes   yes      yes
system              yes    yes           no     no    no       no
system of users     yes    yes           no     no    no       no
system by its name  yes    yes           no     no    no       no
"""
HEAD, *ROWS = (re.split(r"  +|(?<=[A-Z]) (?=[A-Z])", line.strip()) for line in TABLE.strip().splitlines())
EXPECTED = [
    (name, Origin[origin], value == "yes") for name, *values in ROWS for origin, value in zip(HEAD, values, strict=True)
]


def test_the_table_has_every_origin_and_declaration() -> None:
    assert {origin for _, origin, _ in EXPECTED} == set(Origin)
    assert [name for name, *_ in ROWS] == list(DECLARATIONS)


@pytest.mark.parametrize(("name", "origin", "is_allowed"), EXPECTED)
def test_who_may_publish(name: str, origin: Origin, is_allowed: bool) -> None:
    declaration = DECLARATIONS[name]
    assert may_publish(declaration, origin) is is_allowed
    if is_allowed:
        require_publisher(declaration, origin)
        return
    with pytest.raises(Refused, match=declaration.name) as refused:
        require_publisher(declaration, origin)
    assert refused.value.code == ("insufficient_scope" if origin is Origin.MEMBER else "channel_not_granted")


def test_the_rule_is_written_once() -> None:
    """No other place knows the prefix of the system's channels, or compares the publisher of a declaration."""
    root = Path(__file__).parents[4]
    known = {"services/families/channel/access.py", "connectors/configuration/channel_block.py"}
    known |= {"connectors/definitions/triggers.py"}  # the form of a hook, before there is a declaration
    rule = re.compile(r"SYSTEM_PREFIX|startswith\(\"_system/|publisher [!=]= ")
    found = {
        str(path.relative_to(root))
        for folder in ("services", "connectors", "projections")
        for path in (root / folder).rglob("*.py")
        if rule.search(path.read_text())
    }
    assert found == known
