"""The language of loomlog: every record that crosses a process boundary. Imports nothing of ours."""
