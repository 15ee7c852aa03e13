"""What compiled and exported graphs of torch hold of an op: a name, or a twin that finds it.

For the torch binder; users touch nothing here.
"""
