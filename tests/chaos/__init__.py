"""Killing anything in the middle of many runs, and proving from the log that nothing was lost or done twice.

rig         a stack of its own: broker, Postgres, two runtimes, projector, api, each killed by name
load        starts runs as a microservice and over HTTP; witness sees the log grow and what was promised
faults      which process dies at which run
evidence    everything raw, read when all is over: commands, events, dead letters, ledger lines, rows
history     one partition's accepted history and one run's order of events, with rules of their own
checker     evidence to violations and figures; shares no code with the services it judges
campaign    all of it together; main is `make chaos`, test_kill_anything its short form
"""
