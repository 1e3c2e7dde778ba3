import json
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from tests.chaos import cluster
from tests.chaos.cluster import Node, active_controller, answered, settings_of


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LOOK_S", 0.0)


def nodes(folder: Path) -> tuple[Node, ...]:
    return tuple(
        Node(number=number, folder=folder / str(number), port=9000 + number, controller_port=9100 + number)
        for number in (1, 2, 3)
    )


def properties(text: str) -> dict[str, str]:
    """As Java reads them: the last line of a name wins."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_every_node_has_an_identity_of_its_own_and_knows_all_voters(tmp_path: Path) -> None:
    all_nodes = nodes(tmp_path)
    actual = [properties(settings_of(node, all_nodes)) for node in all_nodes]
    assert [settings["node.id"] for settings in actual] == ["1", "2", "3"]
    voters = "1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103"
    assert {settings["controller.quorum.voters"] for settings in actual} == {voters}
    assert len({settings["log.dirs"] for settings in actual}) == 3
    assert [settings["listeners"] for settings in actual] == [
        f"CLIENTS://127.0.0.1:900{number},CONTROLLER://127.0.0.1:910{number}" for number in (1, 2, 3)
    ]


def test_nothing_is_kept_on_one_node_only(tmp_path: Path) -> None:
    settings = properties(settings_of(nodes(tmp_path)[0], nodes(tmp_path)))
    factors = {name: value for name, value in settings.items() if name.endswith("replication.factor")}
    assert len(factors) == 4
    assert set(factors.values()) == {"3"}
    smallest = {value for name, value in settings.items() if name.endswith(("min.isr", "min.insync.replicas"))}
    assert smallest == {"2"}
    assert settings["unclean.leader.election.enable"] == "false"


def quorum(folder: Path, leader: int, epoch: int) -> Path:
    state = folder / "__cluster_metadata-0" / "quorum-state"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"leaderId": leader, "leaderEpoch": epoch, "data_version": 1}))
    return folder


def test_the_controller_is_the_leader_of_the_latest_epoch(tmp_path: Path) -> None:
    data = [quorum(tmp_path / "1", 1, 4), quorum(tmp_path / "2", 3, 5), quorum(tmp_path / "3", 3, 5)]
    assert active_controller(data) == "kafka-3"


def test_during_an_election_nobody_is_the_controller(tmp_path: Path) -> None:
    assert active_controller([quorum(tmp_path / "1", 1, 5), quorum(tmp_path / "2", -1, 6)]) is None


async def test_a_question_is_asked_until_it_is_answered() -> None:
    answers = iter((KafkaError("not ready"), None, "kafka-2"))

    async def ask_for_it() -> str | None:
        answer = next(answers)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    assert await answered(ask_for_it) == "kafka-2"
