"""A plug-in file, as README.md shows it; nothing here is registered by itself."""
