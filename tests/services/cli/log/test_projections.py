import json

from typer.testing import CliRunner

from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.builds import TableHash
from loomlog.projections.engine.rebuild import RebuildReport
from loomlog.services.cli.log import projections
from loomlog.services.cli.main import app
from loomlog.services.cli.terminal.output import console
from loomlog.services.cli.terminal.projection_text import SILENT_AFTER_S, print_lag, projector_line
from tests.projections import counters
from tests.projections.stories import Partition
from tests.services.cli.places import settings_in

PROJECTOR = {
    "owner": "box-7",
    "state": "projecting",
    "build": 2,
    "applied_events": 1234,
    "lag_ms": 12,
    "said_s_ago": 0.4,
}


def lag(**changes):
    partition = {
        "partition": 0,
        "next_offset": 90,
        "end_offset": 97,
        "lag": 7,
        "term": 80,
        "epoch": 2,
        "owner": "box-7",
    }
    found = {"topic": "loom.run.events", "lag": 7, "problems": 0, "partitions": [partition], "projectors": [PROJECTOR]}
    return found | changes


def test_lag_is_told_by_partition(capsys):
    print_lag(console(), lag())
    head, row, projector = capsys.readouterr().out.splitlines()
    assert head.split() == ["PARTITION", "PROJECTED", "END", "LAG", "TERM", "EPOCH", "OWNER"]
    assert row.split() == ["0", "90", "97", "7", "80", "2", "box-7"]
    assert projector == "projector box-7  projecting, now  1,234 events, lag 12 ms"


def test_a_partition_without_an_owner_has_none(capsys):
    one = lag()["partitions"][0] | {"term": None, "epoch": None, "owner": None}
    print_lag(console(), lag(partitions=[one], projectors=[]))
    shown = capsys.readouterr().out
    assert "none" in shown
    assert "No projector has ever worked here." in shown


def test_a_topic_that_is_not_there_is_said(capsys):
    print_lag(console(), lag(partitions=[]))
    assert "There is no topic loom.run.events yet." in capsys.readouterr().out


def test_a_projector_that_says_nothing_any_more_is_silent_whatever_it_said_last():
    assert "silent, 1 min ago" in projector_line(PROJECTOR | {"said_s_ago": 61.0}).plain
    assert "projecting" in projector_line(PROJECTOR | {"said_s_ago": SILENT_AFTER_S}).plain


PROBLEM = {
    "topic": "loom.run.events",
    "partition": 0,
    "offset": 17,
    "at": "2026-01-31T12:00:00.000Z",
    "run_id": None,
    "kind": "undecodable",
    "error": "7 bytes beginning b'garbage' are not framed",
    "key_hex": None,
    "value_hex": "67617262616765",
}


def problems(monkeypatch, tmp_path, found, *arguments: str):
    async def asked(cli, limit):
        assert limit == 50
        return found

    monkeypatch.setattr(projections, "read_problems", asked)
    return CliRunner().invoke(app, ["projections", "problems", *arguments], env={"LOOMLOG_HOME": str(tmp_path)})


def test_what_could_not_be_projected_is_counted_beside_the_lag(capsys):
    print_lag(console(), lag(problems=2))
    assert "2 records could not be projected: `loomlog projections problems` lists them" in capsys.readouterr().out


def test_and_listed_with_its_place(monkeypatch, tmp_path):
    found = {"count": 3, "problems": [PROBLEM]}
    lines = problems(monkeypatch, tmp_path, found).stdout.splitlines()
    assert lines[1].split()[:3] == ["loom.run.events/0:17", "2026-01-31T12:00:00.000Z", "undecodable"]
    assert "are not framed" in lines[1]
    assert lines[2] == "2 more; --limit shows them."
    assert json.loads(problems(monkeypatch, tmp_path, found, "--json").stdout) == found


def test_where_everything_could_be_projected_that_is_said(monkeypatch, tmp_path):
    assert "Everything" in problems(monkeypatch, tmp_path, {"count": 0, "problems": []}).stdout


def opening(reader, entity_reader, options, prefix):
    """Opens the read models of a test; that of channels has no tables yet."""

    async def opened(cli, name):
        if name is projections.ModelName.CHANNELS:
            return await open_reader(options, schema=f"{prefix}_channels", max_connections=1)
        return reader if name is projections.ModelName.RUNS else entity_reader

    return opened


async def test_problems_are_those_of_the_tables(
    project, project_entities, reader, entity_reader, monkeypatch, tmp_path, options, prefix
):
    partition = Partition()
    partition.claim()
    partition.records.append(b"garbage")
    await project(partition)
    await project_entities(partition)

    monkeypatch.setattr(projections, "_open_reader", opening(reader, entity_reader, options, prefix))
    found = await projections.read_problems(settings_in(tmp_path), 50)
    assert found["count"] == 2
    assert [problem["topic"] for problem in found["problems"]] == ["loom.run.events", "loom.entity.events"]
    assert {name: found["problems"][0][name] for name in ("offset", "kind", "value_hex")} == {
        "offset": 1,
        "kind": "undecodable",
        "value_hex": b"garbage".hex(),
    }


def report(**changes) -> RebuildReport:
    same = (TableHash(rows=5, digest="a"), TableHash(rows=5, digest="a"))
    fields = {
        "build": 3,
        "replaced": 2,
        "switched": True,
        "equal": True,
        "tables": {"runs": same},
        "events": 173,
        "seconds": 0.081,
        "dropped": (1,),
    }
    return RebuildReport(**(fields | changes))


def rebuild(monkeypatch, tmp_path, found: RebuildReport, *arguments: str):
    async def rebuilt(cli, out, name, families, *, allow_difference, is_quiet):
        assert sorted(families) == sorted(found.families or [])
        assert name == ("entities" if families else "runs")
        return found

    async def positions(cli, name):
        return ["loom.run.events/0:165", "loom.run.events/2:4"]

    monkeypatch.setattr(projections, "_run_rebuild", rebuilt)
    monkeypatch.setattr(projections, "_read_positions", positions)
    return CliRunner().invoke(app, ["projections", "rebuild", *arguments], env={"LOOMLOG_HOME": str(tmp_path)})


def test_a_rebuild_tells_what_it_compared_and_how_far_it_is(monkeypatch, tmp_path):
    result = rebuild(monkeypatch, tmp_path, report())
    assert result.exit_code == 0
    assert "Build 3 is live now, from 173 events in 81 ms; build 2 is kept." in result.stdout
    assert "projected up to loom.run.events/0:165, loom.run.events/2:4" in result.stdout


def test_a_difference_is_1_and_switches_nothing(monkeypatch, tmp_path):
    other = (TableHash(rows=5, digest="a"), TableHash(rows=4, digest="b"))
    result = rebuild(monkeypatch, tmp_path, report(switched=False, equal=False, tables={"runs": other}))
    assert result.exit_code == 1
    assert "DIFFERENT" in result.stdout
    assert "build 2 stays live" in result.stdout


def test_as_json_a_rebuild_is_one_document(monkeypatch, tmp_path):
    found = json.loads(rebuild(monkeypatch, tmp_path, report(), "--json").stdout)
    assert found["tables"] == {"runs": {"live_rows": 5, "new_rows": 5, "equal": True}}
    assert found["positions"] == ["loom.run.events/0:165", "loom.run.events/2:4"]


def test_a_rebuild_of_families_tells_whose_rows_were_replaced(monkeypatch, tmp_path):
    families = frozenset({"counter", "tally"})
    options = ("--family", "tally", "--family", "counter")
    result = rebuild(monkeypatch, tmp_path, report(families=families), *options)
    assert "The rows of counter, tally were replaced, from 173 events in 81 ms." in result.stdout
    found = json.loads(rebuild(monkeypatch, tmp_path, report(families=families), *options, "--json").stdout)
    assert found["families"] == ["counter", "tally"]


def test_a_family_that_is_not_there_is_named(tmp_path):
    env = {"LOOMLOG_HOME": str(tmp_path), "LOOMLOG_KAFKA": "x:1", "LOOMLOG_POSTGRES": "postgresql://x"}
    result = CliRunner().invoke(app, ["projections", "rebuild", "--family", "nothing"], env=env)
    assert result.exit_code == 1
    assert "There is no family nothing here" in result.output


async def test_the_read_models_are_listed_with_their_versions_and_families(
    builds, project_entities, reader, entity_reader, monkeypatch, tmp_path, capsys, options, prefix
):
    partition = counters.Counters()
    partition.claim()
    partition.raise_("a", 1)
    partition.add("unknown:acme/x", counters.raised(1), tenant="acme")
    await project_entities(partition)

    monkeypatch.setattr(projections, "_open_reader", opening(reader, entity_reader, options, prefix))
    models = await projections.read_models(settings_in(tmp_path))
    assert [(model["name"], model["build"], model["problems"]) for model in models] == [
        ("runs", 1, 0),
        ("entities", 1, 1),
    ]
    assert models[1]["families"] == [
        {"family": "counter", "version": 1, "aggregates": 1},
        {"family": "unknown", "version": None, "aggregates": 1},
    ]
    projections.print_models(console(), models)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:3] == ["runs", "loom.run.events", "1"]
    assert ["counter", "1", "1"] in lines
    assert ["unknown", "unknown", "1"] in lines


def test_without_tables_the_list_says_so(capsys):
    projections.print_models(console(), [])
    assert "do not exist yet" in capsys.readouterr().out


def test_the_projector_of_entities_names_its_topic():
    assert "loom.entity " in projector_line(PROJECTOR | {"topic": "loom.entity.events"}).plain
    assert "loom.run.events" not in projector_line(PROJECTOR | {"topic": "loom.run.events"}).plain
