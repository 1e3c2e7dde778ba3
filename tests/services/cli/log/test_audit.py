import base64
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from loomlog.connectors.crypto.signatures import generate_key, write_new_key
from loomlog.services.application.log.verifier import VerificationRequest, events_task, partition_mismatch
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.log import audit as command
from loomlog.services.cli.main import app
from loomlog.services.cli.terminal.times import parse_since
from tests.services.cli.places import settings_in
from tests.services.core.audit.test_verify import altered, story
from tests.services.core.audit.written import KEY, verify

DAY_MS = 86_400_000


def invoke(monkeypatch, folder, report, *arguments: str):
    asked = []

    async def given(cli, wanted, keys):
        asked.append((wanted, keys))
        return [report]

    monkeypatch.setattr(command, "_verify_request", given)
    (folder / "public").write_text(KEY.public.text)
    environ = {"LOOMLOG_HOME": str(folder), "LOOMLOG_AUDIT_PUBLIC_KEYS": str(folder / "public")}
    return CliRunner().invoke(app, ["audit", "verify", *arguments], env=environ), asked


def test_a_clean_log_ends_with_0_and_says_who_signed_it(monkeypatch, tmp_path):
    log = story()
    result, asked = invoke(monkeypatch, tmp_path, verify(log.records, log.checkpoints))
    assert result.exit_code == 0, result.output
    assert "loom.run.events/3" in result.stdout
    assert f"34 records, 30 signed ({KEY.key_id} to 30), 4 not signed yet, 1 stale" in result.stdout
    assert "stale         loom.run.events/3:7  r_a seq 5" in result.stdout
    assert "nothing contradicts what was signed" in result.stdout
    assert set(asked[0][1]) == {KEY.key_id}


def test_a_violation_ends_with_1_and_says_which_record(monkeypatch, tmp_path):
    log = story()
    report = verify(altered(log, 9, timestamp=1), log.checkpoints)
    result, _ = invoke(monkeypatch, tmp_path, report)
    assert result.exit_code == 1
    assert "edited        loom.run.events/3:9  r_b seq 3" in result.stdout
    assert "1 violation;" in result.stdout
    as_json, _ = invoke(monkeypatch, tmp_path, report, "--json")
    found = json.loads(as_json.stdout)
    assert as_json.exit_code == 1
    assert (found["clean"], found["violations"], found["records"]) == (False, 1, 34)
    (partition,) = found["partitions"]
    assert partition["findings"][1] | {"detail": ""} == {
        "kind": "edited",
        "topic": "loom.run.events",
        "partition": 3,
        "offset": 9,
        "count": 1,
        "run_id": "r_b",
        "seq": 3,
        "detail": "",
        "violation": True,
    }
    assert partition["keys"] == [{"key_id": KEY.key_id, "first_offset": 0, "next_offset": 30, "checkpoints": 4}]
    assert partition["newest_checkpoint"]["next_offset"] == 30


def test_a_log_nobody_signed_is_not_called_signed(monkeypatch, tmp_path):
    result, _ = invoke(monkeypatch, tmp_path, verify(story().records, []))
    assert result.exit_code == 0
    assert "nothing contradicts, and nothing is signed" in result.stdout


def test_a_run_is_shown_with_its_place(monkeypatch, tmp_path):
    log = story()
    report = verify(log.records, log.checkpoints, watch="r_c")
    result, asked = invoke(monkeypatch, tmp_path, report, "--run", "r_c")
    assert "r_c  12 events, offsets 12 to 23, ended" in result.stdout
    assert asked[0][0].run_id == "r_c"


def test_what_contradicts_itself_is_refused(monkeypatch, tmp_path):
    report = verify(story().records, [])
    for more in (("--partition", "1"), ("--since", "24h")):
        result, asked = invoke(monkeypatch, tmp_path, report, "--run", "r_c", *more)
        assert result.exit_code == 2
        assert not asked


ALL = ("loom.run.events", "loom.entity.events", "loom.channel.events")


@pytest.mark.parametrize(
    ("more", "topics"),
    [
        ((), ALL),
        (("--since", "24h"), ALL),
        (("--partition", "1"), ALL),
        (("--topic", "copy"), ("loom.run.events",)),
        (("--run", "r_c"), ("loom.run.events",)),
        (("--run", "counter:acme/hits"), ("loom.entity.events",)),
        (("--channels",), ("loom.channel.events",)),
        (("--channels", "--topic", "copy"), ("loom.channel.events",)),
        (("--entities",), ("loom.entity.events",)),
        (("--entities", "--partition", "1"), ("loom.entity.events",)),
        (("--entities", "--topic", "copy"), ("loom.entity.events",)),
    ],
)
def test_runs_and_entities_are_verified_together_or_alone(monkeypatch, tmp_path, more, topics):
    _, asked = invoke(monkeypatch, tmp_path, verify(story().records, []), *more)
    assert asked[0][0].events_topics == topics


def test_a_run_is_nothing_among_entities(monkeypatch, tmp_path):
    for more in (("--entities", "--run", "r_c"), ("--channels", "--run", "r_c"), ("--channels", "--entities")):
        result, asked = invoke(monkeypatch, tmp_path, verify(story().records, []), *more)
        assert (result.exit_code, asked) == (2, [])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--topic", "loom.run.commands"), "no copy of loom.run.events"),
        (("--topic", "loom.entity.events"), "--entities verifies that one"),
        (("--topic", "loom.channel.events"), "--channels verifies that one"),
        (("--entities", "--topic", "loom.run.events"), "no copy of loom.entity.events"),
    ],
)
def test_another_topic_of_ours_is_no_copy(monkeypatch, tmp_path, more, said):
    result, asked = invoke(monkeypatch, tmp_path, verify(story().records, []), *more)
    assert (result.exit_code, asked) == (2, [])
    assert said in result.stderr


@pytest.mark.parametrize(
    ("count", "said"),
    [(3, ""), (2, "copy has 2 partitions, {} has 3: 1 that were signed are missing"), (4, "1 are not signed")],
)
def test_a_log_without_some_of_its_partitions_is_not_the_one_that_was_signed(count, said):
    task = replace(
        events_task(VerificationRequest(topic="copy"), {}, "loom.entity.events"),
        checkpoints_topic="signed",
    )
    found = partition_mismatch(task, count, 3)
    assert said.format("signed") in found
    assert bool(found) == bool(said)


def test_since_is_a_time_or_how_long_ago():
    assert parse_since("24h", 10 * DAY_MS) == 9 * DAY_MS
    assert parse_since("90m", DAY_MS) == DAY_MS - 5_400_000
    assert parse_since("1970-01-02", 0) == DAY_MS
    assert parse_since("1970-01-02T00:00:00Z", 0) == DAY_MS
    assert parse_since("1970-01-02T01:00:00+01:00", 0) == DAY_MS
    with pytest.raises(UsageError, match="yesterday"):
        parse_since("yesterday", 0)


def test_a_key_is_made_and_its_secret_half_not_shown(tmp_path):
    result = CliRunner().invoke(app, ["audit", "keygen", str(tmp_path / "k")])
    assert result.exit_code == 0
    assert "PRIVATE KEY" in (tmp_path / "k").read_text()
    assert "PRIVATE KEY" not in result.stdout
    assert (tmp_path / "k.pub").read_text().split()[-1] in result.stdout
    as_json = json.loads(CliRunner().invoke(app, ["audit", "keygen", str(tmp_path / "j"), "--json"]).stdout)
    assert as_json["public_key"] == str(tmp_path / "j.pub")
    again = CliRunner().invoke(app, ["audit", "keygen", str(tmp_path / "k")])
    assert again.exit_code == 1
    assert "never written over" in again.output


def test_keys_come_from_the_option_or_from_the_settings_with_our_own(tmp_path):
    key, public_file = write_new_key(tmp_path / "k")
    other = generate_key().public
    (tmp_path / "others").write_text(other.text)
    cli = settings_in(
        tmp_path,
        LOOMLOG_AUDIT_KEY_FILE=str(tmp_path / "k"),
        LOOMLOG_AUDIT_PUBLIC_KEYS=str(tmp_path / "others"),
    )
    assert set(command.load_trusted_keys(cli, None)) == {key.key_id, other.key_id}
    assert set(command.load_trusted_keys(cli, public_file)) == {key.key_id}
    raw = base64.b64encode(key.key.private_bytes_raw()).decode()
    assert raw not in repr(settings_in(tmp_path, LOOMLOG_AUDIT_KEY=raw))
