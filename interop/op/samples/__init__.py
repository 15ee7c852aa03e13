"""Host calls as an op knows them: `Host`, the samples of a batch, executors, and forks.

The layer below the definition of an op: it asks an op for its label and its host, no more.
Users touch `Host`, from `twingrad.interop`.
"""
