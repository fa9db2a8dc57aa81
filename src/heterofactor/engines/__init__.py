"""Where the sources' steps run; `Serial` is the meaning of all the others."""

from heterofactor.engines.dask import DaskEngine
from heterofactor.engines.serial import Serial
from heterofactor.engines.threads import Threads
from heterofactor.rounds import Engine, MakeEngine

ENGINES: dict[str, MakeEngine] = {"serial": Serial, "threads": Threads, "dask": DaskEngine()}

__all__ = ["ENGINES", "DaskEngine", "Engine", "Serial", "Threads"]
