"""Rules that say which tool calls of a run are allowed, denied, or need the approval of people (decision 68). Pure.

    arguments.py   values of a call's arguments by JSON path
    evaluation.py  the verdict of policies about one call
    tree_totals.py the verdict where it depends on what the other runs of the tree were allowed

Before: a policy of the file, of a tenant or of an agent, as JSON. After: services/core/run/interrupts/approvals.py
records verdicts.
"""
