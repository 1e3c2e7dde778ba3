import pytest

from loomlog.connectors.configuration.env_template import render_env_template
from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.configuration.routing import RoutingFailure, resolve_candidate
from loomlog.connectors.configuration.settings import setting_rows
from tests.connectors.configuration.conftest import Folder


@pytest.mark.parametrize("names", ["base", "base,local"])
def test_every_candidate_of_a_preset_is_a_model(folder: Folder, names: str):
    configuration = folder.load("agents: {}", {"LOOMLOG_PRESETS": names}).configuration
    listed = [configuration.tiers, *(plan.tiers for plan in configuration.user_tiers.values())]
    candidates = [candidate for tiers in listed for some in tiers.values() for candidate in some]
    assert len(candidates) > 20
    assert [one for one in candidates if isinstance(resolve_candidate(configuration, one), RoutingFailure)] == []
    assert "default" in configuration.user_tiers
    assert set(configuration.tiers) == {"low", "middle", "high"}


def test_presets_lie_above_the_built_in_providers_in_their_order_and_below_the_files(folder: Folder):
    loaded = folder.load("provider_priority: !append [mock]", {"LOOMLOG_PRESETS": "base,local"})
    assert loaded.configuration.provider_priority[0] == "ollama-local"
    assert loaded.configuration.provider_priority[-1] == "mock"
    assert "anthropic" in loaded.configuration.provider_priority
    assert len(loaded.files) == 1, "presets are no files of the installation"


def test_a_preset_named_twice_is_laid_once(folder: Folder):
    once = folder.load("agents: {}", {"LOOMLOG_PRESETS": "base"}).configuration
    assert folder.load("agents: {}", {"LOOMLOG_PRESETS": "base,base"}).configuration == once


def test_a_preset_that_does_not_exist_is_an_error_with_the_nearest_name(folder: Folder):
    with pytest.raises(ConfigurationError, match=r"no preset bass; did you mean base\?; there are base, local"):
        folder.load("agents: {}", {"LOOMLOG_PRESETS": "bass"})


def test_every_preset_says_what_it_is_for():
    assert all(len(preset.description) > 20 for preset in load_presets().values())


def test_the_template_has_every_setting_and_its_defaults_are_the_defaults(tmp_path):
    lines = render_env_template().splitlines()
    assigned = dict(line[2:].split("=", 1) for line in lines if line.startswith("# LOOMLOG_"))
    assert list(assigned) == [row.name for row in setting_rows()]
    settings, warnings = read_settings(assigned, working_directory=tmp_path)
    assert settings == read_settings({}, working_directory=tmp_path)[0]
    assert not warnings
