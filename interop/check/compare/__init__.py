"""What the check compares: rules with differences, orders, batches, and ways of calling.

Each yields findings; `doctor` puts them in order.
"""
