"""What only the torch side has: its traps, compiled and exported programs, sharding, memory."""
