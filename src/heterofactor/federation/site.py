"""A site: it owns its tables, answers messages with sums, and keeps all else on its own disk.

A message holds everything that is needed to answer it. So a site that was away, or that comes back
with or without its memory, can take part in the next round as if nothing had happened: what it
missed only makes its unique part lag behind for a round.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heterofactor.engines import Serial
from heterofactor.federation.messages import pack, restored, unpack
from heterofactor.federation.owned import Owned, facts_of, make_owned
from heterofactor.files import save
from heterofactor.linalg import like
from heterofactor.rounds import Message, State

if TYPE_CHECKING:
    from heterofactor.federation.secure import SiteEnd

LOG = logging.getLogger("heterofactor.federation")


class Site:
    """One party of a federation: what it does with each message.

    Parameters
    ----------
    name : str
        Of the site; no other may have it.
    X : dict, list or tuple of tables, or one table
        Its data, as `HMF.fit` takes them. They stay here.
    folder : str or path
        Where it keeps its checkpoint, ``<name>.checkpoint.safetensors``, and in the end its model,
        ``<name>.safetensors``.
    sources : array-like, optional
        For one table, the source of each row; for a list of tables, their names.
    hidden_among : int, optional
        Answer with masked messages only, whose sum is over at least so many sites.

    Notes
    -----
    What leaves is what `answer` returns: to ``describe``, the number of features and a hash of
    their names, the precision, how many sources there are and whether all entries are there; to
    ``step``, the sums of the stage; to all else, that it was done. Of an error only the kind is
    said, since its text may quote the data: the text is in this site's own log.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from heterofactor.federation import Site
    >>> from heterofactor.federation.messages import pack, unpack
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     site = Site("north", {"north": np.eye(4)}, folder)
    ...     header, _ = unpack(site.answer(pack({"kind": "describe"}, {})))
    >>> header["n_features"], header["sources"], header["complete"]
    (4, 1, True)
    """

    def __init__(
        self,
        name: str,
        X: Any,
        folder: str | os.PathLike[str],
        *,
        sources: Any = None,
        hidden_among: int | None = None,
    ) -> None:
        self.name, self.folder, self.hidden_among = name, Path(folder), hidden_among
        if not self.folder.is_dir():
            raise FileNotFoundError(f"There is no folder {str(folder)!r}: make it first.")
        self._X, self._sources = X, sources
        self._setup: dict[str, Any] = {}
        self._stage, self._place = 0, [0, 0]
        self._told: list[str] = []
        self._message: Message = {}
        self._replied, self._done = b"", ""
        self._keys: dict[str, bytes] = {}
        self._owned: Owned | None = None
        self._engine = Serial([], [])
        self._facts = _facts(X, sources)

    @property
    def checkpoint(self) -> Path:
        """Where the site keeps its private state."""
        return self.folder / f"{self.name}.checkpoint.safetensors"

    @property
    def result(self) -> Path:
        """Where the site keeps its model."""
        return self.folder / f"{self.name}.safetensors"

    def answer(self, data: bytes) -> bytes:
        """Return the reply to a message; whatever goes wrong, a reply that says so.

        Parameters
        ----------
        data : bytes
            As `messages.pack` makes them.
        """
        try:
            header, arrays = unpack(data)
            return self._answers(header, arrays)
        except Exception as error:
            LOG.exception("site %r could not answer", self.name)
            reason = f"{type(error).__name__}, see the log of the site"
            return pack({"kind": "refused", "reason": reason}, {})

    def _answers(self, header: dict[str, Any], arrays: State) -> bytes:
        kind = header["kind"]
        if kind == "describe":
            return pack({"kind": "described"} | self._facts, {})
        if kind == "finish" and header["setup"]["run"] == self._done:
            return pack({"kind": "done"}, {})
        self._prepare(header["setup"])
        if kind == "begin":
            self._begin(header, arrays)
            self._keep()
            return pack({"kind": "begun"}, {})
        if kind == "step":
            return self._step(header, arrays)
        if kind == "key":
            public = self._end().public
            self._keep()
            return pack({"kind": "key", "public": public}, {})
        if kind == "unmask":
            return self._unmask(header, arrays)
        if kind == "finish":
            self._finish(header, arrays)
            return pack({"kind": "done"}, {})
        raise ValueError(f"The message is of kind {kind!r}, which this version does not know.")

    def _prepare(self, setup: dict[str, Any]) -> None:
        """Make the sources that are asked for; go on from a checkpoint of this run."""
        if setup == self._setup and self._owned is not None:
            return
        if odd := [key for key, value in setup["tables"].items() if self._facts[key] != value]:
            raise ValueError(
                f"The federation is about tables with {setup['tables']}, but {odd[0]} of this "
                f"site's is {self._facts[odd[0]]!r}: correct the table."
            )
        if setup["plain"] and not self._facts["complete"]:
            raise ValueError(
                "The federation began with complete tables only, and this site's has holes: begin "
                "it anew with this site, or fill them."
            )
        owned = make_owned(
            self._X, self._sources, setup["model"], setup["plain"], setup["mean_energy"]
        )
        states = owned.locals(setup["seed"], self.name)
        self._stage, self._place, self._told, self._replied = 0, [0, 0], [], b""
        if self.checkpoint.exists():
            header, arrays = unpack(self.checkpoint.read_bytes())
            if header["setup"]["run"] == setup["run"]:
                self._place, self._told = header["place"], header["told"]
                self._keys = {run: bytes.fromhex(key) for run, key in header["keys"].items()}
            if header["setup"] == setup and header["facts"] == self._facts:
                self._stage = header["stage"]
                states = _by_stack(arrays, len(states), owned)
        self._setup, self._owned = setup, owned
        self._engine = Serial(owned.sources, states)

    def _keep(self) -> None:
        """Write the private states, once the new file is complete."""
        header = {
            "setup": self._setup,
            "facts": self._facts,
            "stage": self._stage,
            "place": self._place,
            "told": self._told,
            "keys": {run: key.hex() for run, key in self._keys.items()},
        }
        arrays = {
            f"{place}/{name}": value
            for place, state in enumerate(self._engine.locals())
            for name, value in state.items()
        }
        part = self.checkpoint.with_name(f"{self.checkpoint.name}.{os.getpid()}.part")
        part.touch(mode=0o600)
        part.write_bytes(pack(header, arrays))
        os.replace(part, self.checkpoint)

    def _begin(self, header: dict[str, Any], arrays: State) -> None:
        self._engine.begin(restored(header["stage"]), self._brought(arrays))
        self._stage = header["number"]

    def _step(self, header: dict[str, Any], arrays: State) -> bytes:
        """Take a step, once in a round however often it is asked for."""
        masked = header.get("masked")
        if self.hidden_among and (masked is None or masked["need"] < self.hidden_among):
            raise ValueError(
                f"Asked for a sum over fewer sites than hidden_among={self.hidden_among}, or one "
                "that is not masked: the server must ask with secure=True, and need as large."
            )
        place = [header["round"], masked["attempt"] if masked else 0]
        if place == self._place and self._replied:
            return self._replied
        if masked and place <= self._place:
            raise ValueError("Asked to mask two messages with the same masks, which would tell.")
        if header["round"] != self._place[0] or not self._message:
            if header["number"] != self._stage:
                self._begin(header, arrays)
            stage, loss = restored(header["stage"]), restored(header["loss"])
            self._message = self._engine.round(stage, loss, self._brought(arrays))
        sent = self._end().mask(masked, self._message) if masked else self._message
        self._place, self._told = place, []
        self._replied = pack({"kind": "step", "round": place[0]}, sent)
        self._keep()
        return self._replied

    def _unmask(self, header: dict[str, Any], arrays: State) -> bytes:
        """Tell what unmasks a sum: of this site's last message, and of one sum alone."""
        if header["place"] != self._place or self._told not in ([], header["came"]):
            raise ValueError("Asked to unmask a sum that this site is no part of, or another one.")
        told = self._end().tell(header, arrays)
        self._told = header["came"]
        self._keep()
        return pack({"kind": "unmasked"}, told)

    def _end(self) -> SiteEnd:
        """Return what masks this site's messages; each run has a key of its own."""
        from heterofactor.federation.secure import SiteEnd, new_key

        run = self._setup["run"]
        if run not in self._keys:
            self._keys = {run: new_key()}
        return SiteEnd(self.name, self._keys[run])

    def _finish(self, header: dict[str, Any], arrays: State) -> None:
        """Save this site's model: the shared basis, its own unique ones and its own scores."""
        assert self._owned is not None
        shared, loss = self._brought(arrays), restored(header["loss"])
        if header["number"] != self._stage:  # away in the last round: score by the final basis
            basis = shared["basis"]
            shared["turn"] = like(np.eye(basis.shape[-1]), basis)
            self._engine.round(restored(header["stage"]), loss, shared)
        model = self._owned.finished(shared, self._engine.locals(), loss, header["told"])
        save(model, self.result)
        self.checkpoint.unlink(missing_ok=True)
        self._setup, self._done, self._keys = {}, header["setup"]["run"], {}

    def _brought(self, arrays: State) -> State:
        """Bring what was sent into the library of the tables."""
        assert self._owned is not None
        example = self._owned.tables.example()
        return {name: like(value, example) for name, value in arrays.items()}


def _facts(X: Any, sources: Any) -> dict[str, Any]:
    tables, complete = facts_of(X, sources)
    columns = tables.columns[0]
    names = None
    if columns is not None:
        listed = json.dumps([str(name) for name in columns])
        names = hashlib.sha256(listed.encode()).hexdigest()
    return {
        "n_features": tables.shared_length,
        "features": names,
        "dtype": str(np.dtype(str(tables.values[0].dtype).rpartition(".")[2])),
        "sources": len(tables.names),
        "complete": complete,
        "sparse": tables.has_sparse,
    }


def _by_stack(arrays: State, count: int, owned: Owned) -> list[State]:
    """Return the private states that a checkpoint holds."""
    example = owned.tables.example()
    states: list[State] = [{} for _ in range(count)]
    for path, value in arrays.items():
        place, name = path.split("/", 1)
        states[int(place)][name] = value if name == "seed" else like(value, example)
    return states
