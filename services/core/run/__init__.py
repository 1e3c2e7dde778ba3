"""The run family: how a run starts, takes model turns, calls tools, and ends."""
