"""Arguments that have structure: dicts, objects, lists, None, any number of arrays.

An op with such arguments is a `Family` of ordinary ops, one for each structure that it is called
with; these have the arrays in it as their arguments.  Users have it from `define` and the like;
nothing here is theirs to touch.
"""
