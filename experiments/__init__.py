"""The experiments of twingrad; `make experiments` runs them all."""
