"""The tests of twingrad."""
