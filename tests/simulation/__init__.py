"""Deterministic simulation: the whole pipeline in one process, on a simulated log, clock and network, from a seed.

loop.py       virtual time, and processes that can be crashed, paused and woken up between any two callbacks
log.py        the log: topics, partitions, records
broker.py     a process's way to the log: appends that get lost or come late, ranges, tails
store.py      the projector's way to its tables: a small Postgres with row locks, lost transactions, lost commits
faults.py     what goes wrong and when: drawn from the seed, each decision by a name of its own
owners.py     a runtime process: the real Host, Owner, Flusher and desk over the simulated seams
answers.py    what the models and tools of that process say
books.py      what that process spends: the real books beside the real host, in seeds with a limit
entities.py   entities of that process beside its runs, in seeds with one of the loads below
counters.py   counters, which send commands to one another and have timers
definitions.py  agents that change while runs of them start, live and are forked
memory.py     runs whose tool is the real Memory, over a scope that all of them change
channels.py   runs whose tool is the real Channel, and requests that publish and read
triggers.py   schedules while clocks jump, deliveries of webhooks at two apis, and the ends of the runs of both
entity_ledger.py  reads them with code of its own: the ledger of each load
projector.py  a projector process: the real RunProjection; a rebuild: the real one too
clients.py    who sends commands, again and again until they are acknowledged
ledger.py     reads the books with code of its own
checker.py    reads the raw log after every step with code of its own
reading.py    what was decoded once is not decoded again
world.py      one seed from beginning to end
shrink.py     the fewest faults that still break the same invariant, and their story
mutations.py  broken versions of the product, each of which must be found out
workers.py    many seeds in many processes, which warm.py has warmed up
main.py       python -m tests.simulation.main --seeds N
"""
