"""Compiled kernels (numba) of the buffer.

Nothing is compiled at import; machine code is cached on disk, and :func:`rudder.buffer.warm`
compiles or loads all of it ahead of the first minibatch.

``records`` (a record per node, and the id map), ``chains`` (records in order), on them ``scores``
and ``admission`` (what a minibatch does under the two families of policies); ``rows`` (copies of
feature rows); ``memory`` (types and hints that all share).
"""
