"""How the experiments measure, and how they record what they measured.

`harness` times methods in turns and writes results; `records` reads them.  Neither knows an
experiment.
"""
