"""One-shot jobs: what is asked, what it costs, reading the source, running a mechanism once, and its public result."""
