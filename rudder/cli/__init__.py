"""The command line: `app` finds commands, `options` and `output` are what they share."""
