"""Where the sources' steps run; `Serial` is the meaning of all the others."""

from heterofactor.engines.serial import Serial
from heterofactor.rounds import Engine

ENGINES: dict[str, type[Serial]] = {"serial": Serial}

__all__ = ["ENGINES", "Engine", "Serial"]
