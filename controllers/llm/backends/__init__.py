"""Where a language model runs: in this process, or behind an OpenAI-compatible server."""
