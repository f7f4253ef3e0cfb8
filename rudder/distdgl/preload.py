"""What every role needs, ready to be forked: imported once per machine, with an effect on purpose.

Importing torch and DGL takes seconds and the buffer's kernels load from a cache on disk; done
before the fork, no trainer waits for either.
"""

from __future__ import annotations

import rudder.distdgl.server
import rudder.distdgl.trainer  # noqa: F401 - imported for those that are forked
from rudder.buffer import warm

warm()
