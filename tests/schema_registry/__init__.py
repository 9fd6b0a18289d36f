"""A real schema registry for the tests."""
