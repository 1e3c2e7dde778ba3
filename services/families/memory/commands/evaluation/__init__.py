"""Evaluations of memory: how well facts are found again, extracted from chats, compared, and told apart by vectors.

    memory-eval         offline.py      ranking.py, figures.py
    memory-eval-live    live.py         extraction.py, baseline.py, model_calls.py
    memory-eval-judge   judge.py        pairs.py, baseline.py, model_calls.py
    memory-calibrate    calibrate.py    bands.py, pairs.py

What they are measured on is made by generator.py and level_chats.py from the phrases of themes.py, or read from a file
by dataset.py; corpus.py has its types.

Before: services/cli/main.py. After: projections/memory_index, services/families/memory, connectors.
"""
