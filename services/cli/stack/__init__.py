"""The local stack: broker, Postgres and our services as child processes of one supervisor, in one state folder.

`local.local_stack` starts it, `shutdown.stop_stack` stops it from anywhere, `record.load_record` describes it. The
rest: home (the folder), ports, java, broker, postgres, account (for root), children (supervision), processes (process
identities).
"""
