"""What only the JAX side has: its traps, shapes held, sharding, numbers."""
