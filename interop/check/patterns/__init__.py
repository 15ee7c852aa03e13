"""How the check names a mistake: the evidence of a wrong gradient, and the patterns that fit it.

A new pattern is a function of an `Evidence`, with its row in `PATTERNS` of `named`.
"""
