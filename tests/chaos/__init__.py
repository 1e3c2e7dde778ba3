"""Striking anything in the middle of many runs, and proving from the log that nothing was lost or done twice.

stack        a stack of its own: one broker or three (cluster), Postgres, two runtimes, projector, api
rig          its processes by name: struck, put to sleep, held down, given another time (clock)
outside      a slow model and a server whose effects can be counted; never struck
load         starts runs as a microservice and over HTTP; witness sees the log grow and what was promised
definitions  promotes versions of agents meanwhile, each followed by a run that has to have it
triggers     hands messages from run to run, and posts what comes from outside, beside a schedule; trigger_blocks
faults       what is struck at which run; striker does it, wiping empties the snapshot store
evidence     everything raw, read when all is over: commands, events, dead letters, ledger lines, rows
history      one partition's accepted history and one run's order of events, with rules of their own
rows         what the read model has to say, folded a second time
patience     runs that hang although nothing is broken any more; pauses, how long take-overs took; standstill, when the
             campaign itself was not running
checker      evidence to violations and figures; shares no code with the services it judges
campaign     all of it together; main is `make chaos`, test_kill_anything its short form
report       the outcome for a terminal; result as JSON; reliability as docs/RELIABILITY.md
"""
