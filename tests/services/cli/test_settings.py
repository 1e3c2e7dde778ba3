import os

import pytest

from loomlog.services.cli.errors import Unreachable, UsageError
from loomlog.services.cli.settings import load_cli_settings
from loomlog.services.cli.stack.processes import identify
from loomlog.services.cli.stack.record import build_stack_record, save_record, supervisor_lock
from loomlog.services.cli.stack.services_record import save_services_record
from tests.services.cli.places import child, settings_in, wiring, with_stack


def test_without_anything_the_defaults_hold(tmp_path):
    cli = load_cli_settings({}, working_directory=tmp_path)
    assert cli.home.root == tmp_path / ".loomlog"
    assert cli.api_url == "http://127.0.0.1:8787"
    assert (cli.token, cli.insights_url, cli.services_record) == ("", "", None)
    assert not cli.stack.is_supervised


def test_reading_settings_makes_no_folder(tmp_path):
    settings_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_addresses_come_from_the_environment_before_the_stack_before_the_default(tmp_path):
    cli = settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="127.0.0.1:99")
    assert cli.api_url == "http://127.0.0.1:99"
    running = with_stack(cli, child("api"), known=wiring(tmp_path))
    assert running.api_url == "http://127.0.0.1:1"
    assert (running.kafka(), running.postgres()) == ("127.0.0.1:19", "postgresql://x@127.0.0.1:15/x")
    named = settings_in(
        tmp_path, LOOMLOG_BASE_URL="https://l.test", LOOMLOG_KAFKA="k.test:9092", LOOMLOG_POSTGRES="postgresql://p"
    )
    running = with_stack(named, child("api"), known=wiring(tmp_path))
    assert (running.api_url, running.kafka(), running.postgres()) == (
        "https://l.test",
        "k.test:9092",
        "postgresql://p",
    )


def test_when_nothing_runs_that_is_said_with_what_to_do(tmp_path):
    cli = settings_in(tmp_path)
    with pytest.raises(Unreachable, match=r"Nothing runs in .*home: .*loomlog up.*LOOMLOG_KAFKA"):
        cli.kafka()
    with pytest.raises(Unreachable, match="LOOMLOG_POSTGRES"):
        cli.postgres()


def test_the_list_of_a_dead_stack_is_not_believed(tmp_path):
    dead = with_stack(settings_in(tmp_path), supervised=False)
    with pytest.raises(Unreachable):
        dead.kafka()
    left_over = with_stack(settings_in(tmp_path), child("kafka"), supervised=False)
    assert left_over.kafka() == "127.0.0.1:19"


def test_the_token_of_the_command_line_is_its_own(tmp_path):
    cli = settings_in(tmp_path, LOOMLOG_TOKEN="mine", LOOMLOG_AUTH_TOKEN="shared")
    assert cli.token == "mine"
    assert "LOOMLOG_TOKEN" not in cli.environ
    assert settings_in(tmp_path, LOOMLOG_AUTH_TOKEN="shared").token == "shared"


def test_secrets_do_not_show(tmp_path):
    cli = settings_in(tmp_path, LOOMLOG_TOKEN="tell-nobody", LOOMLOG_POSTGRES="postgresql://u:tell-nobody@h/d")
    assert "tell-nobody" not in repr(cli)


def test_a_setting_that_cannot_be_used_is_a_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="LOOMLOG_LISTEN_ADDR: 'x' is not usable"):
        settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="x")


def test_the_wiring_counts_only_while_its_own_supervisor_lives(tmp_path):
    home = settings_in(tmp_path).home
    home.root.mkdir()
    save_services_record(home.root, wiring(tmp_path))
    assert settings_in(tmp_path).services_record is None, "nobody holds the folder"
    with supervisor_lock(home.lock):
        save_record(home.record, build_stack_record("127.0.0.1:19", "postgresql://x", ()))
        assert settings_in(tmp_path).services_record == wiring(tmp_path)
        save_services_record(home.root, wiring(tmp_path, supervisor_pid=os.getppid()))
        assert settings_in(tmp_path).services_record is None, "a killed supervisor left it"
    assert identify(os.getpid()) is not None
