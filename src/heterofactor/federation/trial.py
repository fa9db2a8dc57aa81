"""Federations on one machine, to try things out: sites in threads, or in processes of their own.

Over a network, use a library that is made for it: a transport is an object with `names`, `send` and
`close`, and `serve` is all that a site does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Self

from heterofactor.federation.site import Site

NUMBER_BYTES = 8


class InThreads:
    """Sites in threads of this process, that see each other's messages no more than others do.

    Parameters
    ----------
    sites : sequence of Site
        Each with a name of its own.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from heterofactor.federation import InThreads, Site
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with InThreads([Site("north", {"north": np.eye(4)}, folder)]) as transport:
    ...         print(transport.names, list(transport.send({"north": b"hello"}, timeout=10)))
    ['north'] ['north']
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self.names = [site.name for site in sites]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"Two sites have one name among {self.names}: rename one.")
        self._replies: SimpleQueue[tuple[str, int, bytes]] = SimpleQueue()
        self._number = 0
        self._messages: dict[str, SimpleQueue[tuple[int, bytes] | None]] = {}
        for site in sites:
            queue = self._messages[site.name] = SimpleQueue()
            Thread(target=self._work, args=(site, queue), daemon=True).start()

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Return the replies of the sites that answered in time."""
        self._number += 1
        for name, data in messages.items():
            self._messages[name].put((self._number, data))
        return collected(self._replies, self._number, set(messages), timeout)

    def close(self) -> None:
        """End the threads, once they have done what they are doing."""
        for queue in self._messages.values():
            queue.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _work(self, site: Site, queue: SimpleQueue[tuple[int, bytes] | None]) -> None:
        while (message := queue.get()) is not None:
            number, data = message
            self._replies.put((site.name, number, site.answer(data)))


class InProcesses:
    """Sites in processes of their own on this machine, which are told and answer through pipes.

    Parameters
    ----------
    commands : dict of list of str
        By site, what starts a process that calls `serve`.

    Examples
    --------
    >>> from heterofactor.federation import InProcesses
    >>> InProcesses({}).names
    []
    """

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        self.names = list(commands)
        self._commands = dict(commands)
        self._replies: SimpleQueue[tuple[str, int, bytes]] = SimpleQueue()
        self._number = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._listeners: dict[str, Thread] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a site's process, which may have run before.

        Parameters
        ----------
        name : str
            Of the site.
        """
        if name in self._listeners:  # what the old process had to say is no answer of the new one
            self._listeners[name].join()
            _shut(self.processes[name])
        process = subprocess.Popen(
            self._commands[name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes[name] = process
        listener = Thread(target=self._listen, args=(name, process), daemon=True)
        self._listeners[name] = listener
        listener.start()

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Return the replies of the sites that answered in time."""
        self._number += 1
        while not self._replies.empty():
            self._replies.get()
        reached = set()
        for name, data in messages.items():
            stream = self.processes[name].stdin
            assert stream is not None
            try:
                put(stream, self._number, data)
                reached.add(name)
            except (BrokenPipeError, ValueError):
                continue
        return collected(self._replies, self._number, reached, timeout)

    def close(self) -> None:
        """End the processes: a site ends where there is nothing more to read."""
        for process in self.processes.values():
            _shut(process)
        for name, process in self.processes.items():
            process.wait()
            self._listeners[name].join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            while (message := take(stream)) is not None:
                self._replies.put((name, *message))
        # nobody waits for the answer of a process that has ended
        self._replies.put((name, -1, b""))


def serve(site: Site) -> None:
    """Answer messages from standard input on standard output, until there are no more.

    Parameters
    ----------
    site : Site
        Whatever else is printed on the way goes to standard error.

    Examples
    --------
    >>> from heterofactor.federation import serve
    >>> serve.__name__
    'serve'
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (message := take(sys.stdin.buffer)) is not None:
        number, data = message
        put(replies, number, site.answer(data))


def put(stream: IO[bytes], number: int, data: bytes) -> None:
    """Write a numbered message to a pipe.

    Parameters
    ----------
    stream : binary file
        The pipe.
    number : int
        Which a reply repeats, so that late ones can be told.
    data : bytes
        The message.

    Examples
    --------
    >>> import io
    >>> from heterofactor.federation.trial import put, take
    >>> pipe = io.BytesIO()
    >>> put(pipe, 7, b"hello")
    >>> take(io.BytesIO(pipe.getvalue()))
    (7, b'hello')
    """
    for value in (len(data), number):
        stream.write(value.to_bytes(NUMBER_BYTES, "little"))
    stream.write(data)
    stream.flush()


def take(stream: IO[bytes]) -> tuple[int, bytes] | None:
    """Read a numbered message from a pipe; None where it has ended.

    Parameters
    ----------
    stream : binary file
        The pipe.

    Examples
    --------
    >>> import io
    >>> from heterofactor.federation.trial import take
    >>> take(io.BytesIO(b"")) is None
    True
    """
    head = stream.read(2 * NUMBER_BYTES)
    if len(head) < 2 * NUMBER_BYTES:
        return None
    size = int.from_bytes(head[:NUMBER_BYTES], "little")
    data = stream.read(size)
    return None if len(data) < size else (int.from_bytes(head[NUMBER_BYTES:], "little"), data)


def collected(
    queue: SimpleQueue[tuple[str, int, bytes]],
    number: int,
    waiting: set[str],
    timeout: float,
) -> dict[str, bytes]:
    """Return the replies to one message that come in time; late ones to others are dropped.

    Parameters
    ----------
    queue : SimpleQueue of (site, number, reply)
        Where replies arrive; -1 is the number of one that will never come.
    number : int
        Of the message.
    waiting : set of str
        The sites that were asked.
    timeout : float
        Seconds.

    Examples
    --------
    >>> from queue import SimpleQueue
    >>> from heterofactor.federation.trial import collected
    >>> queue = SimpleQueue()
    >>> queue.put(("north", 2, b"late")), queue.put(("north", 3, b"in time"))
    (None, None)
    >>> collected(queue, 3, {"north"}, timeout=1.0)
    {'north': b'in time'}
    """
    replies: dict[str, bytes] = {}
    end, waiting = time.monotonic() + timeout, set(waiting)
    while waiting:
        try:
            name, of, data = queue.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            break
        if of == number:
            replies[name] = data
        if of in (number, -1):
            waiting.discard(name)
    return replies


def _shut(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe to a process, which may have ended with something in it."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
