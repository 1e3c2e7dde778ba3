"""What a user would pick instead, and what no system can beat, measured beside ours with the same workload.

    kafka_floor.py, postgres_floor.py   only the durable writes of a run, nothing else; in our own environment
    dbos/ langgraph/ restate/           a peer each, the way its own documentation recommends, with pinned requirements
    environments.py                     makes the peers' environments under .loomlog/peers, when asked
    systems.py                          all of them as one catalogue: how each is started, what is durable
    main.py                             `make bench-peers`: measures them interleaved
    page.py                             docs/BENCHMARKS.md from the figures

A peer's client is a program `... ADDRESS IN_FLIGHT WARM_UP_S SECONDS` around closed_loop.measure, which needs nothing
but Python, so that it runs in the peer's environment too.
"""
