"""Agents that the program starts by itself, by their names in configurations."""

CONSOLIDATOR = "memory/consolidator"
"""Learns from chats; the timer of a target starts it, and connectors/configuration/presets/memory.yaml has it."""
