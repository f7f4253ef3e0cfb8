"""Replay of recorded traces, and bounds of what any buffer could save on them. See README.md."""
