"""From records of any shape to events: formats, paths and what becomes text.  No client, no file."""
