from tests.chaos.load import AGENTS, agent_of


def test_both_ways_of_starting_runs_start_every_kind() -> None:
    for way in (0, 1):
        assert {agent_of(number) for number in range(way, 40, 2)} == set(AGENTS)


def test_half_of_the_runs_are_neither_fast_nor_slow() -> None:
    agents = [agent_of(number) for number in range(200)]
    assert [agents.count(name) for name in ("worker", "rememberer", "sprinter", "caller")] == [80, 20, 60, 40]
