"""The shipped ops: every property of every row, their accuracy, and what one of them has alone."""
