import os
import time
from pathlib import Path

import pytest

from loomlog.services.cli.stack.broker import (
    JVM_FLAGS,
    MAIN_CLASS,
    Broker,
    archive_path,
    class_path,
    escape_property_value,
    is_broker_of,
    new_cluster_id,
    read_cluster_id,
    server_environment,
    server_properties,
)
from loomlog.services.cli.stack.child import ChildExit
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.java import Java

PORTS = {"kafka_port": "19092", "controller_port": "19093"}


def settings(data: Path = Path("/state/kafka/data")) -> dict[str, str]:
    lines = server_properties(data, PORTS).splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_broker_listens_on_loopback_only() -> None:
    actual = settings()
    assert actual["listeners"] == "CLIENTS://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"
    assert actual["controller.quorum.voters"] == "1@127.0.0.1:19093"
    assert "0.0.0.0" not in server_properties(Path("/x"), PORTS)


def test_nothing_of_the_template_is_left() -> None:
    assert "${" not in "".join(f"{key}={value}" for key, value in settings().items())


def test_owners_may_have_sessions_of_half_a_second_and_restarts_are_quick() -> None:
    actual = settings()
    assert int(actual["group.min.session.timeout.ms"]) <= 500
    assert (actual["broker.session.timeout.ms"], actual["broker.heartbeat.interval.ms"]) == ("1000", "200")
    assert actual["group.initial.rebalance.delay.ms"] == "0"
    assert actual["auto.create.topics.enable"] == "false"


def test_a_batch_of_one_mebibyte_fits() -> None:
    assert int(settings()["message.max.bytes"]) > 1024**2
    assert int(settings()["replica.fetch.max.bytes"]) >= int(settings()["message.max.bytes"])


def test_a_path_with_odd_characters_survives_the_properties_format() -> None:
    assert escape_property_value("/a b/é\\x") == "/a b/\\u00e9\\\\x"
    assert escape_property_value("\U0001f980") == "\\ud83e\\udd80"


def test_cluster_ids_are_random_and_look_like_kafkas() -> None:
    ids = {new_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert {len(each) for each in ids} == {22}
    assert not any(each.startswith("-") for each in ids)


def test_the_cluster_id_is_read_from_the_storage(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\nnode.id=1\ncluster.id=abc\n")
    assert read_cluster_id(tmp_path) == "abc"


@pytest.mark.parametrize("content", [None, "", "node.id=1\n"])
def test_a_storage_without_its_id_is_never_formatted_over(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(StackError, match="not formatted again, because it may hold your log"):
        read_cluster_id(tmp_path)


def jars(folder: Path) -> tuple[Path, ...]:
    for name in ("a.jar", "b.jar"):
        (folder / name).touch()
    return (folder / "a.jar", folder / "b.jar")


def java(version: str = "17.0.1") -> Java:
    return Java(program=Path("/usr/bin/java"), major=17, version=version)


def test_another_java_or_other_jars_have_another_archive(tmp_path: Path) -> None:
    present = jars(tmp_path)
    name = archive_path(tmp_path, java(), present)
    assert archive_path(tmp_path, java(), present) == name
    assert archive_path(tmp_path, java("17.0.2"), present) != name
    assert archive_path(tmp_path, java(), present[:1]) != name
    os.utime(present[0], (1, 1))
    assert archive_path(tmp_path, java(), present) != name


def test_jars_are_named_one_by_one(tmp_path: Path) -> None:
    assert class_path(jars(tmp_path)) == f"{tmp_path}/a.jar:{tmp_path}/b.jar"


@pytest.fixture
def fake_world(tmp_path: Path) -> dict[str, str]:
    """A Java that only knows its version and how to format, and a Maven that has one jar."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in {
        "java": (
            'case "$*" in *-version*) echo \'version "17.0.1"\' >&2;; *StorageTool*)\n'
            'for last; do :; done; data=$(sed -n "s/^log.dirs=//p" "$last"); mkdir -p "$data"\n'
            'echo "cluster.id=fake" > "$data/meta.properties";; esac'
        ),
        "mvn": 'for a; do case "$a" in -DoutputDirectory=*) : > "${a#*=}/kafka.jar";; esac; done',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


async def argv_of(broker: Broker) -> tuple[str, ...]:
    before_start = broker.child().before_start
    assert before_start is not None
    return await before_start()


def broker_in(folder: Path, environ: dict[str, str], said: list[str]) -> Broker:
    return Broker(home=open_home(folder), port=19092, controller_port=19093, environ=environ, report=said.append)


async def ends(broker: Broker, *, code: int, was_ready: bool, asked: bool) -> bool:
    after_exit = broker.child().after_exit
    assert after_exit is not None
    return await after_exit(ChildExit(code=code, was_ready=was_ready, stop_requested=asked))


async def test_the_first_clean_stop_keeps_the_archive_and_later_starts_use_it(
    tmp_path: Path, fake_world: dict[str, str]
) -> None:
    output: list[str] = []
    broker = broker_in(tmp_path / "state", fake_world, output)
    argv = await argv_of(broker)
    assert argv[-2:] == (MAIN_CLASS, str(tmp_path / "state" / "kafka" / "server.properties"))
    assert set(JVM_FLAGS) <= set(argv)
    written = Path(next(part.partition("=")[2] for part in argv if part.startswith("-XX:ArchiveClassesAtExit=")))
    written.write_text("archive")
    assert not await ends(broker, code=143, was_ready=True, asked=True)
    later = await argv_of(broker)
    (archive,) = (tmp_path / "state" / "cache").glob("*.jsa")
    assert f"-XX:SharedArchiveFile={archive}" in later
    assert "-Xshare:auto" in later
    assert output == ["Broker: getting its jars with Maven (43 MB, once)", "Broker: formatting its storage (once)"]


async def test_archives_of_other_javas_do_not_pile_up(tmp_path: Path, fake_world: dict[str, str]) -> None:
    broker = broker_in(tmp_path / "state", fake_world, [])
    cache = tmp_path / "state" / "cache"
    for age, name in enumerate("abcd"):
        (cache / f"broker-{name}.jsa").touch()
        os.utime(cache / f"broker-{name}.jsa", (1000 - age, 1000 - age))
    argv = await argv_of(broker)
    Path(next(part.partition("=")[2] for part in argv if part.startswith("-XX:ArchiveClassesAtExit="))).touch()
    await ends(broker, code=143, was_ready=True, asked=True)
    kept = {path.name for path in cache.glob("*.jsa")}
    assert len(kept) == 3
    assert {"broker-a.jsa", "broker-b.jsa"} <= kept


async def test_an_archive_of_a_broker_that_died_is_not_kept(tmp_path: Path, fake_world: dict[str, str]) -> None:
    broker = broker_in(tmp_path / "state", fake_world, [])
    for code, asked in ((-9, True), (1, False)):
        argv = await argv_of(broker)
        written = Path(next(part.partition("=")[2] for part in argv if part.startswith("-XX:ArchiveClassesAtExit=")))
        written.write_text("torn")
        assert not await ends(broker, code=code, was_ready=True, asked=asked)
        assert [path.suffix for path in (tmp_path / "state" / "cache").iterdir() if path.is_file()] == []


async def test_an_archive_with_which_the_broker_dies_is_thrown_away_and_the_broker_started_again(
    tmp_path: Path, fake_world: dict[str, str]
) -> None:
    output: list[str] = []
    broker = broker_in(tmp_path / "state", fake_world, output)
    argv = await argv_of(broker)
    written = next(part.partition("=")[2] for part in argv if part.startswith("-XX:ArchiveClassesAtExit="))
    Path(written).write_text("archive")
    await ends(broker, code=143, was_ready=True, asked=True)
    await argv_of(broker)
    assert not await ends(broker, code=-9, was_ready=False, asked=False), "a kill -9 is no fault of the archive"
    assert list((tmp_path / "state" / "cache").glob("*.jsa")) != []
    assert await ends(broker, code=134, was_ready=False, asked=False)
    assert list((tmp_path / "state" / "cache").glob("*.jsa")) == []
    assert output[-1].endswith("starting it again without its class archive")
    await argv_of(broker)
    assert not await ends(broker, code=134, was_ready=False, asked=False)


async def test_unfinished_archives_are_removed_when_they_are_old(tmp_path: Path, fake_world: dict[str, str]) -> None:
    broker = broker_in(tmp_path / "state", fake_world, [])
    cache = tmp_path / "state" / "cache"
    (cache / "a.jsa.1.new").touch()
    (cache / "b.jsa.2.new").touch()
    os.utime(cache / "a.jsa.1.new", (time.time() - 3600,) * 2)
    await argv_of(broker)
    assert [path.name for path in cache.glob("*.new")] == ["b.jsa.2.new"]


async def test_an_interrupted_formatting_is_begun_again(tmp_path: Path, fake_world: dict[str, str]) -> None:
    home = open_home(tmp_path / "state")
    (home.kafka / "data.new").mkdir()
    (home.kafka / "data.new" / "half").touch()
    await argv_of(broker_in(home.root, fake_world, []))
    assert [path.name for path in home.kafka_data.iterdir()] == ["meta.properties"]


def test_only_the_broker_of_this_folder_is_ours(tmp_path: Path) -> None:
    home = open_home(tmp_path / "one")
    assert is_broker_of(home, ["java", MAIN_CLASS, str(home.kafka_settings)])
    assert not is_broker_of(home, ["java", MAIN_CLASS, str(open_home(tmp_path / "two").kafka_settings)])
    assert not is_broker_of(home, ["vi", str(home.kafka_settings)])


def test_servers_see_nothing_of_our_environment_but_the_path() -> None:
    assert server_environment({"PATH": "/p", "SECRET": "x"}) == {"PATH": "/p", "LC_ALL": "C.UTF-8"}
