"""What the ops are compared with; none of it uses the ops' own code."""
