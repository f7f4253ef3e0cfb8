"""A sweep as something to look at: Markdown, and one HTML page."""
