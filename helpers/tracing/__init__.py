"""One forward pass, read from the outside: text in, a `Trace` out. Nothing in the model changes.

This is the only place where a network and a text are checked. Whoever gets a Trace can trust it.
"""

from helpers.tracing.passes import probe, read, trace
from helpers.tracing.record import Block, Trace

__all__ = ["Block", "Trace", "probe", "read", "trace"]
