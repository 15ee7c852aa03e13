"""The gradient check."""
