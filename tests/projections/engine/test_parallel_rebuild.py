from loomlog.projections.engine.parallel_rebuild import divide_partitions


def test_shares_of_the_partitions_have_similar_sizes():
    assert divide_partitions({0: 10, 1: 70, 2: 30, 3: 40}, 2) == [{1: 70, 0: 10}, {3: 40, 2: 30}]


def test_there_are_no_more_shares_than_partitions():
    assert divide_partitions({0: 5}, 4) == [{0: 5}]
    assert divide_partitions({}, 4) == []
