import re
import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml

from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.setting_types import FLAG_OR_NAME
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.stack.plan import (
    LOCAL_DRAIN_MS,
    OVERLAY,
    TWO_SPARES_BYTES,
    ReviewFolders,
    create_plan,
    overlay_text,
)
from tests.services.cli.places import CONFIGURATION, configured, settings_in

FREE = {"LOOMLOG_LISTEN_ADDR": "127.0.0.1:0", "LOOMLOG_INSIGHTS_PORT": "0"}


def planned(folder: Path, *, folders: ReviewFolders | None = None, runtimes: int = 1, spares=None, **environ: str):
    cli = settings_in(folder, **{**FREE, **environ})
    cli.home.root.mkdir(exist_ok=True)
    return create_plan(cli, working_directory=folder, folders=folders, runtimes=runtimes, spares=spares)


def folders_in(folder: Path) -> ReviewFolders:
    return ReviewFolders(source=folder / "elsewhere", out=folder / "reports")


def test_a_plan_has_addresses_with_real_ports(tmp_path):
    configured(tmp_path)
    made = planned(tmp_path)
    assert made.api_url.startswith("http://127.0.0.1:")
    assert int(made.api_url.rpartition(":")[2]) > 0
    assert made.environ["LOOMLOG_LISTEN_ADDR"] == made.listen_addr
    assert made.environ["LOOMLOG_INSIGHTS_PORT"] == str(made.insights_port)
    assert made.insights_port not in (0, None)
    assert made.environ["LOOMLOG_HOME"] == str(tmp_path / "home")


def test_without_a_token_this_machine_is_open_and_says_so(tmp_path):
    configured(tmp_path)
    made = planned(tmp_path)
    assert made.open_mode
    assert made.environ["LOOMLOG_OPEN_MODE"] == "1"


def test_with_a_token_nothing_is_open(tmp_path):
    configured(tmp_path)
    made = planned(tmp_path, LOOMLOG_AUTH_TOKEN="a-shared-token")
    assert not made.open_mode
    assert "LOOMLOG_OPEN_MODE" not in made.environ


def test_without_a_token_nothing_listens_to_the_network(tmp_path):
    configured(tmp_path)
    with pytest.raises(UsageError, match=r"there is no token.*LOOMLOG_AUTH_TOKEN"):
        planned(tmp_path, LOOMLOG_LISTEN_ADDR="0.0.0.0:0")
    with pytest.raises(UsageError, match="no loopback address"):
        planned(tmp_path, LOOMLOG_LISTEN_ADDR="0.0.0.0:0", LOOMLOG_OPEN_MODE="1")


def test_a_mistake_in_the_configuration_is_said_before_anything_starts(tmp_path):
    configured(tmp_path, CONFIGURATION.replace("mock-reviewer,", "mock-reviewer, colour: red,"))
    with pytest.raises(UsageError, match=r"loomlog\.yaml:7: agents\.reviewer\.colour is not a known key"):
        planned(tmp_path)


def test_an_unknown_setting_is_said_too(tmp_path):
    configured(tmp_path)
    with pytest.raises(UsageError, match="LOOMLOG_LISTEN is not a setting"):
        planned(tmp_path, LOOMLOG_LISTEN="x")


@pytest.mark.parametrize("setting", ["LOOMLOG_LISTEN_ADDR", "LOOMLOG_GRPC_ADDR", "LOOMLOG_INSIGHTS_PORT"])
def test_a_port_in_use_names_the_port_who_has_it_and_the_setting(tmp_path, setting):
    configured(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        value = str(port) if setting.endswith("_PORT") else f"127.0.0.1:{port}"
        with pytest.raises(CliError, match=rf"wants port {port}, but process \d+ .*{setting}="):
            planned(tmp_path, **{setting: value})


def test_both_cannot_have_the_same_port(tmp_path):
    configured(tmp_path)
    free = planned(tmp_path).insights_port
    with pytest.raises(CliError, match="the API or insights is to have it"):
        planned(tmp_path, LOOMLOG_LISTEN_ADDR=f"127.0.0.1:{free}", LOOMLOG_INSIGHTS_PORT=str(free))
    with pytest.raises(CliError, match="gRPC wants port"):
        planned(tmp_path, LOOMLOG_LISTEN_ADDR=f"127.0.0.1:{free}", LOOMLOG_GRPC_ADDR=f"127.0.0.1:{free}")


def test_without_an_address_there_is_no_grpc(tmp_path):
    configured(tmp_path)
    assert planned(tmp_path).grpc_addr == ""


def test_insights_can_be_left_out(tmp_path):
    configured(tmp_path)
    made = planned(tmp_path, LOOMLOG_INSIGHTS_ENABLED="0")
    assert (made.insights_port, made.insights_url) == (None, "")


def test_a_drain_is_short_here_unless_it_is_shorter(tmp_path):
    configured(tmp_path)
    assert planned(tmp_path).environ["LOOMLOG_DRAIN_TIMEOUT_MS"] == str(LOCAL_DRAIN_MS)
    assert planned(tmp_path, LOOMLOG_DRAIN_TIMEOUT_MS="50").environ["LOOMLOG_DRAIN_TIMEOUT_MS"] == "50"


def test_each_start_that_is_to_be_paused_is_an_occasion_of_its_own(tmp_path):
    configured(tmp_path)
    assert "LOOMLOG_START_PAUSED" not in planned(tmp_path).environ
    value = planned(tmp_path, LOOMLOG_START_PAUSED="yes").environ["LOOMLOG_START_PAUSED"]
    assert re.fullmatch(r"1@[0-9]{13}", value)
    longest = planned(tmp_path, LOOMLOG_START_PAUSED="x" * 64).environ["LOOMLOG_START_PAUSED"]
    assert FLAG_OR_NAME.parse(longest) == longest


@pytest.mark.parametrize(("available_bytes", "default"), [(TWO_SPARES_BYTES, 2), (TWO_SPARES_BYTES - 1, 1)])
def test_spares_are_started_as_memory_allows_unless_another_number_is_named(
    tmp_path, monkeypatch, available_bytes, default
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available_bytes))
    configured(tmp_path)
    for spares, environ, expected in (
        (None, {}, default),
        (0, {}, 0),
        (2, {"LOOMLOG_SPARES": "3"}, 2),
        (None, {"LOOMLOG_SPARES": "3"}, 3),
        (None, {"LOOMLOG_SPARES": "0"}, 0),
    ):
        plan = planned(tmp_path, spares=spares, **environ)
        assert (plan.spares, plan.environ["LOOMLOG_SPARES"]) == (expected, str(expected))
    assert planned(tmp_path, runtimes=16).spares == 0, "there is no room for one"


@pytest.mark.parametrize(
    ("spares", "environ", "message"),
    [
        (-1, {}, "--spares is -1; expected 0 to 15"),
        (16, {}, "--spares is 16; expected 0 to 15: with 1 that own partitions there are at most 16 runtimes"),
        (None, {"LOOMLOG_SPARES": "-1"}, "LOOMLOG_SPARES"),
        (None, {"LOOMLOG_SPARES": "many"}, "LOOMLOG_SPARES"),
    ],
)
def test_a_number_of_spares_that_cannot_be_is_a_sentence(tmp_path, spares, environ, message):
    configured(tmp_path)
    with pytest.raises(UsageError, match=message):
        planned(tmp_path, spares=spares, **environ)


@pytest.mark.parametrize("runtimes", [0, 17])
def test_the_number_of_runtimes_has_bounds(tmp_path, runtimes):
    configured(tmp_path)
    with pytest.raises(UsageError, match=f"--runtimes is {runtimes}"):
        planned(tmp_path, runtimes=runtimes)


# --- the overlay ------------------------------------------------------------------------------------------------------


def test_folders_reach_the_services_as_a_file_on_top_of_the_others(tmp_path):
    base = configured(tmp_path)
    made = planned(tmp_path, folders=folders_in(tmp_path))
    overlay = tmp_path / "home" / OVERLAY
    assert made.environ["LOOMLOG_CONFIG_FILES"] == f"{base}:{overlay}"
    loaded = load(made.environ, working_directory=Path("/"))
    volumes = loaded.configuration.volumes
    assert (str(volumes["source"].path), volumes["source"].mode) == (str(tmp_path / "elsewhere"), "ro")
    assert volumes["source"].default is True, "what the file said besides the path stays"
    assert (str(volumes["out"].path), volumes["out"].mode) == (str(tmp_path / "reports"), "rw")
    assert (made.volume_path("source"), made.volume_path("out"), made.volume_path("none")) == (
        str(tmp_path / "elsewhere"),
        str(tmp_path / "reports"),
        "",
    )


def test_that_the_overlay_replaces_paths_is_no_warning(tmp_path):
    configured(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    assert planned(tmp_path, folders=folders_in(tmp_path)).warnings == ()


def test_folders_that_are_configured_already_need_no_overlay(tmp_path):
    configured(tmp_path)
    made = planned(tmp_path, folders=ReviewFolders(source=tmp_path / "src", out=tmp_path / "results"))
    assert "LOOMLOG_CONFIG_FILES" not in made.environ
    assert not (tmp_path / "home" / OVERLAY).exists()


def test_the_folders_of_the_last_review_stay_for_the_runs_it_left(tmp_path):
    configured(tmp_path)
    planned(tmp_path, folders=folders_in(tmp_path))
    assert planned(tmp_path).volume_path("source") == str(tmp_path / "elsewhere")
    other = ReviewFolders(source=tmp_path / "third", out=tmp_path / "reports")
    assert planned(tmp_path, folders=other).volume_path("source") == str(tmp_path / "third")


def test_a_review_of_the_configured_folders_takes_the_overlay_away(tmp_path):
    configured(tmp_path)
    planned(tmp_path, folders=folders_in(tmp_path))
    own = ReviewFolders(source=tmp_path / "src", out=tmp_path / "results")
    assert planned(tmp_path, folders=own).volume_path("source") == str(tmp_path / "src")
    assert not (tmp_path / "home" / OVERLAY).exists()


def test_named_files_stay_named_and_the_overlay_comes_last(tmp_path):
    named = tmp_path / "mine.yaml"
    named.write_text(CONFIGURATION)
    configured(tmp_path, "agents: {never: {provider: mock, model: read}}")
    made = planned(tmp_path, folders=folders_in(tmp_path), LOOMLOG_CONFIG_FILES=str(named))
    assert made.environ["LOOMLOG_CONFIG_FILES"].split(":") == [str(named), str(tmp_path / "home" / OVERLAY)]
    assert set(made.configuration.agents) == {"reviewer"}


def test_a_folder_of_files_is_not_named_a_second_time(tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.yaml").write_text(CONFIGURATION)
    made = planned(tmp_path, folders=folders_in(tmp_path), LOOMLOG_CONFIG_DIR=str(tmp_path / "conf.d"))
    assert made.environ["LOOMLOG_CONFIG_FILES"] == str(tmp_path / "home" / OVERLAY)
    assert made.volume_path("source") == str(tmp_path / "elsewhere")


def test_a_volume_that_cannot_be_made_is_said_before_anything_starts(tmp_path):
    (tmp_path / "results").write_text("in the way")
    configured(tmp_path)
    with pytest.raises(
        UsageError, match=r"(?s)configuration cannot be used.*volumes\.out: cannot make the folder .*results"
    ):
        planned(tmp_path)


def test_a_read_only_volume_that_is_missing_is_a_warning(tmp_path):
    configured(tmp_path)
    assert any("volumes.source: there is no folder" in warning for warning in planned(tmp_path).warnings)


def test_volumes_the_configuration_does_not_have_are_made(tmp_path):
    without = yaml.safe_load(CONFIGURATION)
    del without["volumes"]
    del without["agents"]["reviewer"]["volumes"]
    configured(tmp_path, yaml.safe_dump(without))
    volumes = planned(tmp_path, folders=folders_in(tmp_path)).configuration.volumes
    assert (volumes["source"].mode, volumes["out"].mode) == ("ro", "rw")


@pytest.mark.parametrize("name", ["with space", 'quo"te', "umläut", "a#b", "x: y", "back\\slash", "{braces}", "~tilde"])
def test_odd_names_of_folders_survive_the_file(tmp_path, name):
    configured(tmp_path)
    odd = ReviewFolders(source=tmp_path / name, out=tmp_path / "reports")
    assert planned(tmp_path, folders=odd).volume_path("source") == str(tmp_path / name)


def test_a_name_that_a_file_would_expand_is_refused(tmp_path):
    configured(tmp_path)
    with pytest.raises(UsageError, match="expand"):
        planned(tmp_path, folders=ReviewFolders(source=tmp_path / "${LOOMLOG_HOME}", out=tmp_path))


def test_a_file_that_cannot_be_listed_is_refused(tmp_path):
    folder = tmp_path / "a:b"
    folder.mkdir()
    configured(folder)
    with pytest.raises(UsageError, match="colon"):
        planned(folder, folders=folders_in(folder), LOOMLOG_HOME=str(tmp_path / "home"))


def test_the_overlay_says_where_it_comes_from(tmp_path):
    configured(tmp_path)
    text = overlay_text(folders_in(tmp_path), planned(tmp_path).configuration)
    assert text.startswith("# Written by `loomlog review`")
    assert yaml.safe_load(text)["volumes"]["source"] == {"path": str(tmp_path / "elsewhere")}
