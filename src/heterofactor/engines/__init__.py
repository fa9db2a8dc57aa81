"""Where the sources' steps run; `Serial` is the meaning of all the others."""

from heterofactor.engines.serial import Serial
from heterofactor.engines.threads import Threads
from heterofactor.rounds import Engine

ENGINES: dict[str, type[Serial]] = {"serial": Serial, "threads": Threads}

__all__ = ["ENGINES", "Engine", "Serial", "Threads"]
