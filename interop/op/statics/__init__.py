"""What is fixed before a framework is entered: static parameters, and constants.

`static` makes a key of the parameters, `hidden` looks for arrays in them.  Nothing here is for
users; the binders ask the op.
"""
