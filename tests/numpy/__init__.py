"""What only the NumPy side has."""
