"""The pictures and the report, from the results files alone: no framework, no experiment.

`python -m experiments.report.plots` draws, `python -m experiments.report.document` writes.
"""
