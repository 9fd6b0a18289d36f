"""What `stream-dp check` looks at, a module for each thing that must be in place; nothing is made or changed."""
