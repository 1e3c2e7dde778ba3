"""What is gathered for a state file, while it is read."""

from collections.abc import Callable

from loomlog.services.stream.archive.state_export import StateExport
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import CODEC, World

Worlds = Callable[..., World]


async def test_who_gives_up_in_the_middle_may_let_go_after_the_gathering_is_closed(world_of: Worlds) -> None:
    """A file over its bound is given up so. Python lets go of the iterators when it likes, and a complaint then is a
    trace in the log of a process that did nothing wrong.
    """
    world = world_of(turns=1)
    world.host()
    world.start_run("r_one")
    world.start_run("r_two")
    await world.finished("r_one", "r_two")
    with StateExport(CODEC) as gathered:
        await gathered.read(world.log, TOPICS.events, 0, await world.log.end_offset(TOPICS.events, 0))
        gathered.choose()
        runs, records = gathered.runs(), gathered.records("r_two")
        assert next(runs).run_id in {"r_one", "r_two"}
        assert next(records)
    runs.close()
    records.close()
