"""A federation over Flower: a SuperLink carries the messages, every site runs a SuperNode.

Flower starts a process for every message to a site, and forgets what it knew; so a site reads its
tables and its checkpoint anew each time. A round takes some ten seconds, whatever the work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from heterofactor.federation import Quorum, Site, fit, save_shared
from heterofactor.federation.quorum import LOG
from heterofactor.hmf import HMF
from heterofactor.reading import read_sources

# Under this name a record holds the bytes of a message, and under the other who answers.
RECORD, BYTES, NAME = "heterofactor", "message", "site"
# Seconds between two looks for sites.
PATIENCE = 3.0
# How a model travels from whoever starts the run to the server: one line of JSON.
MODEL, ORDERS = "model", "orders"


class FlowerTransport:
    """Carries the messages of a federation over Flower's grid.

    A site is known by the name that it gives itself, and not by its node, which is another one
    whenever it comes back.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What Flower gives a server app.
    names : sequence of str
        Of the sites that may take part.
    wait : float
        Seconds to wait for all of them at the beginning.

    Examples
    --------
    >>> from heterofactor.engines.flower import FlowerTransport
    >>> [name for name in ("send", "close") if hasattr(FlowerTransport, name)]
    ['send', 'close']
    """

    def __init__(self, grid: Any, names: Sequence[str], wait: float = 600.0) -> None:
        self.names = list(names)
        self._grid = grid
        self._nodes: dict[str, int] = {}
        self._known: set[int] = set()
        end = time.monotonic() + wait
        while time.monotonic() < end and set(self._nodes) < set(self.names):
            self._meet(wait)
            time.sleep(PATIENCE)

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Return the replies of the sites that answered in time."""
        self._meet(timeout)
        asked = {node: messages[name] for name, node in self._nodes.items() if name in messages}
        replies = self._replies(asked, timeout)
        return {name: data for name, node, data in replies if self._nodes.get(name) == node}

    def close(self) -> None:
        """Hold nothing: the grid is Flower's."""

    def _meet(self, timeout: float) -> None:
        """Ask those that have come since the last time for their names."""
        nodes = set(self._grid.get_node_ids())
        self._nodes = {name: node for name, node in self._nodes.items() if node in nodes}
        self._known &= nodes
        strangers = dict.fromkeys(nodes - self._known, b"")
        for name, node, _ in self._replies(strangers, timeout):
            self._known.add(node)
            if name not in self.names:
                LOG.warning("site %r is not of this federation, and is not asked", name)
            elif name in self._nodes:
                LOG.warning("there is a site %r already: the second is not asked", name)
            else:
                self._nodes[name] = node

    def _replies(
        self, messages: Mapping[int, bytes], timeout: float
    ) -> list[tuple[str, int, bytes]]:
        """Return who answered, from which node, and what."""
        if not messages:
            return []
        sent = [
            Message(
                RecordDict({RECORD: ConfigRecord({BYTES: data})}),
                dst_node_id=node,
                message_type="query",
                ttl=timeout,
            )
            for node, data in messages.items()
        ]
        found = []
        for reply in self._grid.send_and_receive(sent, timeout=timeout):
            if reply.has_error():
                LOG.warning("Flower has no answer: %s", reply.error.reason)
                continue
            record: Any = reply.content.get(RECORD, {})
            name, data = record.get(NAME), record.get(BYTES)
            if isinstance(name, str) and isinstance(data, bytes):
                found.append((name, reply.metadata.src_node_id, data))
        return found


def client_app(open_site: Callable[[Mapping[str, Any]], Site] | None = None) -> ClientApp:
    """Return Flower's app of a site.

    Parameters
    ----------
    open_site : callable, optional
        Makes the site of its node's configuration; that is `configured_site` unless given.

    Examples
    --------
    >>> from heterofactor.engines.flower import client_app
    >>> type(client_app()).__name__
    'ClientApp'
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Any) -> Message:
        site = (open_site or configured_site)(context.node_config)
        data: Any = message.content[RECORD][BYTES]
        answer = site.answer(data) if data else b""
        record = ConfigRecord({NAME: site.name, BYTES: answer})
        return Message(RecordDict({RECORD: record}), reply_to=message)

    return app


def configured_site(config: Mapping[str, Any]) -> Site:
    """Return the site that a node's configuration describes.

    Parameters
    ----------
    config : mapping
        ``name``, ``data`` (files with commas between them), ``folder``, and ``hidden_among`` if
        it answers with masked messages only.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from heterofactor.engines.flower import configured_site
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/north.npy", np.eye(3))
    ...     config = {"name": "north", "data": f"{folder}/north.npy", "folder": folder}
    ...     configured_site(config).name
    'north'
    """
    missing = [key for key in ("name", "data", "folder") if key not in config]
    if missing:
        raise ValueError(
            f"The configuration of this site has no {missing[0]!r}: start the SuperNode with "
            '--node-config \'name="..." data="..." folder="..."\'.'
        )
    hidden = config.get("hidden_among")
    return Site(
        str(config["name"]),
        read_sources([Path(path) for path in str(config["data"]).split(",")]),
        str(config["folder"]),
        hidden_among=None if hidden is None else int(hidden),
    )


def server_app() -> ServerApp:
    """Return Flower's app of the server, which does what its run's configuration orders.

    Examples
    --------
    >>> from heterofactor.engines.flower import server_app
    >>> type(server_app()).__name__
    'ServerApp'
    """
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        orders = json.loads(bytes.fromhex(str(context.run_config[ORDERS])))
        transport = FlowerTransport(grid, orders["sites"], orders["wait"])
        quorum = Quorum(**orders["quorum"])
        found = fit(HMF(**orders[MODEL]), transport, quorum=quorum, secure=orders["secure"])
        save_shared(found, orders["out"])

    return app


def write_app(
    folder: Path,
    model: Mapping[str, Any],
    sites: Sequence[str],
    out: Path,
    *,
    quorum: Quorum | None = None,
    secure: bool = True,
    wait: float = 600.0,
) -> None:
    """Write the Flower app of a federation, for ``flwr run``.

    Parameters
    ----------
    folder : Path
        Where; it must be there.
    model : mapping
        Parameters of HMF, as JSON can hold them.
    sites : sequence of str
        Their names.
    out : Path
        The file in which the server keeps the shared components and how the run went.
    quorum : Quorum, optional
        Who must take part in a round.
    secure : bool
        Mask the messages.
    wait : float
        Seconds to wait for the sites.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from heterofactor.engines.flower import write_app
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_app(Path(folder), {"n_shared": 2}, ["north", "south"], Path("shared.safetensors"))
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['federated.py', 'pyproject.toml']
    """
    orders = {
        MODEL: dict(model),
        "sites": list(sites),
        "out": str(out.absolute()),
        "quorum": asdict(quorum or Quorum()),
        "secure": secure,
        "wait": wait,
    }
    # as one word, so that no quoting can go wrong on its way through TOML
    line = json.dumps(orders).encode().hex()
    (folder / "federated.py").write_text(
        '"""The apps of a heterofactor federation."""\n\n'
        "from heterofactor.engines.flower import client_app, server_app\n\n"
        "server = server_app()\nclient = client_app()\n"
    )
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "heterofactor-federation"\nversion = "1.0.0"\n'
        'license = "BSD-3-Clause"\ndependencies = []\n\n'
        '[tool.flwr.app]\npublisher = "heterofactor"\n\n'
        '[tool.flwr.app.components]\nserverapp = "federated:server"\n'
        'clientapp = "federated:client"\n\n'
        f'[tool.flwr.app.config]\n{ORDERS} = "{line}"\n'
    )
