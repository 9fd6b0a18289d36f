"""The Faust apps of a stream, and what hosts them."""
