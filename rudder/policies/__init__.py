"""Replacement policies: which nodes leave the persistent buffer and which enter."""
