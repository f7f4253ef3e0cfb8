"""What a sweep says, and how surely: pure functions over its cells."""
