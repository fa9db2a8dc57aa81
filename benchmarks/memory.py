"""How much memory this process holds; needs nothing beyond Python."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident(which: str) -> int:
    """Return bytes of memory held now (VmRSS) or at most so far (VmHWM); elsewhere the latter."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines[which].split()[0]) * 1024
    # ru_maxrss would do on Linux too, had it not the parent's mark to start from
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
