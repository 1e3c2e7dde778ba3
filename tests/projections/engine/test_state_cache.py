from loomlog.projections.engine.state_cache import StateCache


def test_what_was_written_longest_ago_is_forgotten():
    cache: StateCache[str] = StateCache(entries_max=2)
    cache.put({"a": "1", "b": "2"})
    cache.put({"a": "3"})
    cache.put({"c": "4"})
    assert [cache.find(name) for name in "abc"] == ["3", None, "4"]


def test_the_bytes_of_all_states_are_bounded():
    cache: StateCache[str] = StateCache(entries_max=10, bytes_max=5, size_bytes=len)
    cache.put({"a": "xx", "b": "xx"})
    cache.put({"a": "x", "c": "xx"})
    assert len(cache) == 3
    cache.put({"d": "x"})
    assert [cache.find(name) for name in "abcd"] == ["x", None, "xx", "x"]


def test_a_state_above_the_bound_is_not_kept():
    cache: StateCache[str] = StateCache(entries_max=10, bytes_max=5, size_bytes=len)
    cache.put({"a": "xxxxxx"})
    assert len(cache) == 0
    cache.put({"a": "x"})
    cache.remove("a")
    cache.remove("a")
    cache.clear()
    assert cache.find("a") is None
