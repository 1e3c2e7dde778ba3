import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.ports import (
    KAFKA_PORT,
    PICK_RANGE,
    POSTGRES_PORT,
    Ports,
    choose_ports,
    describe_port_holder,
    is_port_free,
    load_ports,
    pick_port,
    save_ports,
)

BOTH = frozenset({"kafka", "postgres"})


def choose(
    *,
    remembered: dict[str, int] | None = None,
    kafka: int | None = None,
    postgres: int | None = None,
    wanted: frozenset[str] = BOTH,
    held: Iterable[int] = (),
    picks: Iterable[int] = range(40000, 40100),
) -> Ports:
    numbers = iter(picks)
    pick: Callable[[], int] = lambda: next(numbers)  # noqa: E731 - the one fake that needs a type
    return choose_ports(
        remembered=remembered or {},
        kafka=kafka,
        postgres=postgres,
        local_servers=wanted,
        is_free=lambda port: port not in set(held),
        pick=pick,
        describe_holder=lambda port: f"process 7 (the holder of {port}) has it",
    )


def test_without_a_wish_the_defaults_are_used() -> None:
    assert choose() == Ports(kafka=KAFKA_PORT, controller=40000, postgres=POSTGRES_PORT)


def test_remembered_ports_are_used_again() -> None:
    remembered = {"kafka": 1111, "controller": 2222, "postgres": 3333}
    assert choose(remembered=remembered) == Ports(kafka=1111, controller=2222, postgres=3333)


def test_a_wish_beats_what_is_remembered() -> None:
    assert choose(remembered={"kafka": 1111}, kafka=5555).kafka == 5555


def test_zero_picks_a_free_port_and_keeps_the_remembered_one_while_it_is_free() -> None:
    assert choose(kafka=0, picks=[KAFKA_PORT, 40000, 40001], held=[KAFKA_PORT]).kafka == 40000
    assert choose(kafka=0, remembered={"kafka": 1111}).kafka == 1111
    assert choose(kafka=0, remembered={"kafka": 1111}, held=[1111]).kafka == 40000


def test_a_held_port_names_the_port_its_holder_and_the_setting() -> None:
    with pytest.raises(StackError) as problem:
        choose(held=[KAFKA_PORT])
    for part in (f"port {KAFKA_PORT}", "process 7", "LOOMLOG_KAFKA_PORT=0", "Stop that"):
        assert part in str(problem.value)
    with pytest.raises(StackError, match=r"Postgres wants port 15432 .*LOOMLOG_POSTGRES_PORT"):
        choose(held=[POSTGRES_PORT])


def test_a_held_controller_port_is_replaced_without_a_word_because_only_the_broker_uses_it() -> None:
    assert choose(remembered={"controller": 2222}, held=[2222]).controller == 40000


def test_stacks_that_start_at_once_do_not_share_a_default_for_the_controller() -> None:
    assert choose(picks=[40000]).controller != choose(picks=[40001]).controller


def test_two_parts_never_get_the_same_port() -> None:
    assert choose(kafka=40000, picks=[40000, 40001]).controller == 40001
    with pytest.raises(StackError, match="Postgres wants port 5555"):
        choose(kafka=5555, postgres=5555)
    three = choose(kafka=0, postgres=0, picks=[40000, 40000, 40001, 40001, 40002])
    assert (three.kafka, three.postgres, three.controller) == (40000, 40001, 40002)


def test_a_part_that_runs_elsewhere_needs_no_port() -> None:
    held = [KAFKA_PORT]
    assert choose(wanted=frozenset({"postgres"}), held=held).postgres == POSTGRES_PORT


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(StackError, match=rf"LOOMLOG_KAFKA_PORT is {port}"):
        choose(kafka=port)


def test_picking_gives_up_after_a_bounded_number_of_attempts() -> None:
    with pytest.raises(StackError, match="No free port"):
        choose(kafka=0, picks=[KAFKA_PORT] * 100, held=[KAFKA_PORT])


def test_a_picked_port_is_free_and_none_that_connections_get() -> None:
    actual = {pick_port() for _ in range(50)}
    assert actual <= set(PICK_RANGE)
    assert len(actual) > 25, "two who pick at the same time should seldom pick the same"


def test_a_listener_holds_its_port_and_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        assert not is_port_free(port)
        assert "has it" in describe_port_holder(port)
    assert is_port_free(port)


def test_a_picked_port_is_free() -> None:
    assert is_port_free(pick_port())


def test_ports_come_back_as_they_were_saved(tmp_path: Path) -> None:
    save_ports(tmp_path / "ports.json", Ports(kafka=1, controller=2, postgres=3))
    assert load_ports(tmp_path / "ports.json") == {"kafka": 1, "controller": 2, "postgres": 3}


@pytest.mark.parametrize("text", ["", "zzz", "[]", "null", '{"kafka": "x", "postgres": 99999, "other": 1}'])
def test_a_damaged_port_file_is_the_same_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "ports.json").write_text(text)
    assert load_ports(tmp_path / "ports.json") == {}
    assert load_ports(tmp_path / "absent.json") == {}
