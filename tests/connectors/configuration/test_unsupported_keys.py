from dataclasses import fields
from typing import get_args

from loomlog.connectors.configuration.field_types import Driver
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.unsupported_keys import (
    SUPPORTED_TOOLS,
    UNSUPPORTED_BLOCKS,
    UNSUPPORTED_DRIVERS,
    UNSUPPORTED_SECRETS,
    UNSUPPORTED_SETTINGS,
    UNSUPPORTED_TOOLS,
)
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.models.catalog import DRIVERS
from loomlog.connectors.tools.file_skills import FileSkills
from loomlog.connectors.tools.registry import ToolOptions, build_tools


def test_nothing_is_both_now_and_later():
    assert not {field.name for field in fields(Configuration)} & set(UNSUPPORTED_BLOCKS)
    assert not SUPPORTED_TOOLS & set(UNSUPPORTED_TOOLS)


def test_what_is_here_now_is_what_the_process_can_build():
    options = ToolOptions(
        bash_enabled=True, bench_enabled=True, ledger_path="unused", skills=FileSkills({}, lambda name, skill: "")
    )
    of_definitions = {kind.tool for kind in KINDS.values()} | {"Channel", "Evaluation", "Memory", "VolumeDef"}
    assert set(build_tools(options)) | of_definitions == SUPPORTED_TOOLS
    assert set(DRIVERS) == set(get_args(Driver)) - set(UNSUPPORTED_DRIVERS)


def test_all_tools_of_the_reference_are_known():
    own = {"Bench", "Ledger"}
    assert len((SUPPORTED_TOOLS - own) | set(UNSUPPORTED_TOOLS)) == 34


def test_the_special_names_are_names():
    assert set(UNSUPPORTED_SETTINGS) >= UNSUPPORTED_SECRETS


def test_every_name_is_written_like_a_variable():
    assert [name for name in UNSUPPORTED_SETTINGS if not name.replace("_", "").isalnum() or name != name.upper()] == []
