"""The contract of every family: what the kit promises for whatever a folder under services/families declares.

cases.py       the families: those of the registry, docs/examples/counter, and a sample with everything
commands.py    commands of a family, generated from the fields of their records
world.py       the real loop over a log in memory; processes that die at any append; rows as the projector writes them
checks.py      the promises that are kept by the rules alone
loop_checks.py the promises that are kept by the loop
mutations.py   broken versions of the kit and of a family, each of which a check must find

A further family costs nothing here. Commands that a generator would not find are in
tests/services/families/<family>/examples.py, a function `examples(envelope)`.
"""
