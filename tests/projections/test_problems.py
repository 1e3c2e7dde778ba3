from loomlog.projections.problems import ProblemRow, count_problems, list_problems, problems
from tests.projections.stories import TOPIC, Partition, requested, started


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(ProblemRow._fields) == [column.name for column in problems.columns]


async def test_problems_are_listed_by_position_with_the_original_bytes(project, reader):
    assert await list_problems(reader) == []
    partition = Partition()
    partition.claim()
    partition.records += [b"one", b"two\x00\xff"]
    partition.add("r_1", started(), requested(1))
    partition.records[-1] = partition.records[-1][:-1]
    await project(partition)
    rows = await list_problems(reader)
    assert [(row.topic, row.offset, row.run_id, row.kind) for row in rows] == [
        (TOPIC, 1, "", "undecodable"),
        (TOPIC, 2, "", "undecodable"),
        (TOPIC, 4, "r_1", "undecodable"),
    ]
    assert [row.value for row in rows[:2]] == [b"one", b"two\x00\xff"]
    assert await list_problems(reader, limit=1, after=rows[0]) == rows[1:2]
    assert await count_problems(reader) == 3
