"""What several experiments or tests measure: a mesh, the textbook formulas, gradients as posted.

No measuring and no reporting in here.
"""
