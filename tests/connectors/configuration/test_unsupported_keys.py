from dataclasses import fields
from typing import get_args

from loomlog.connectors.configuration.field_types import Driver
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.unsupported_keys import (
    LATER_BLOCKS,
    LATER_DRIVERS,
    LATER_SECRETS,
    LATER_SETTINGS,
    LATER_TOOLS,
    TOOLS_NOW,
)
from loomlog.connectors.models.catalog import DRIVERS
from loomlog.connectors.tools.registry import ToolOptions, build_tools


def test_nothing_is_both_now_and_later():
    assert not {field.name for field in fields(Configuration)} & set(LATER_BLOCKS)
    assert not TOOLS_NOW & set(LATER_TOOLS)


def test_what_is_here_now_is_what_the_process_can_build():
    options = ToolOptions(bash_enabled=True, bench_enabled=True, ledger_path="unused")
    assert set(build_tools(options)) == TOOLS_NOW
    assert set(DRIVERS) == set(get_args(Driver)) - set(LATER_DRIVERS)


def test_all_tools_of_the_reference_are_known():
    own = {"Bench", "Ledger"}
    assert len((TOOLS_NOW - own) | set(LATER_TOOLS)) == 34


def test_the_special_names_are_names():
    assert set(LATER_SETTINGS) >= LATER_SECRETS


def test_every_name_is_written_like_a_variable():
    assert [name for name in LATER_SETTINGS if not name.replace("_", "").isalnum() or name != name.upper()] == []
