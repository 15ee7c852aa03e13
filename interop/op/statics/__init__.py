"""What is fixed before a framework is entered: static parameters, and constants.

`static` makes a key of the parameters, `hidden` looks for arrays in them, `constants` knows arrays
by their content.  Nothing here is for users; the binders ask the op.
"""
