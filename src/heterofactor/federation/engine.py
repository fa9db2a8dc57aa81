"""The engine of a federation: the server's end, which sees sums and names of sites, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from heterofactor.engines import Serial
from heterofactor.engines.serial import sum_in_order
from heterofactor.federation.messages import described, pack, unpack
from heterofactor.federation.quorum import LOG, Quorum, fault, outlying, too_few
from heterofactor.linalg import like
from heterofactor.losses import Loss
from heterofactor.masked import Masked
from heterofactor.rounds import Message, Stage, State
from heterofactor.sources import Dense, Source

Replies = dict[str, tuple[dict[str, Any], State]]
# From the second round of a stage on, all messages look alike. What the solver has found for the
# sites' data is no start for made-up ones: going on with these for long could overflow.
PATTERNS = 2


class Transport(Protocol):
    """Carries messages to the sites, and their replies back."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all sites, whether or not they can be reached."""

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Return the replies of the sites that answered in time."""

    def close(self) -> None:
        """Give back what the transport holds."""


class Federated:
    """Run the sources' steps at the sites that own them.

    Parameters
    ----------
    transport : Transport
        How to reach them.
    names : sequence of str
        Of those that may take part.
    setup : dict
        What every message says of the fit, as JSON.
    quorum : Quorum
        Who takes part in a round.
    sample : Source
        Made-up data, of the sites' shared length and precision: what a message about them looks
        like is what every message must look like.
    n_unique : int
        The largest unique rank.

    Attributes
    ----------
    setup : dict
        What messages say of the fit from now on.
    n_stages, n_rounds : int
        How many there were so far.
    has_changed : bool
        Whether other sites took part in the last round than in the one before.
    taking_part : list of str
        Those of the last round.
    left_out : list of (str, str, str)
        What was left out so far: in which round, which site, and why.

    Examples
    --------
    >>> from heterofactor.federation import Federated
    >>> [name for name in ("begin", "round", "locals", "close") if hasattr(Federated, name)]
    ['begin', 'round', 'locals', 'close']
    """

    def __init__(
        self,
        transport: Transport,
        names: Sequence[str],
        setup: dict[str, Any],
        quorum: Quorum,
        sample: Source,
        n_unique: int,
    ) -> None:
        self._transport, self._names, self._quorum = transport, names, quorum
        self.setup = setup
        n1 = sample.shape[1]
        unique = like(np.zeros((1, n1, n_unique)), sample.energy)
        self._sample = Serial([sample], [{"unique": unique}])
        self._pattern: Message = {}
        self._beginning: tuple[Stage, State] | None = None
        self.n_stages = self._of_stage_so_far = 0
        self.n_rounds = 0
        self.has_changed = False
        self.taking_part: list[str] = []
        self.left_out: list[tuple[str, str, str]] = []

    def begin(self, stage: Stage, shared: State) -> None:
        """Let every site make its private states for this stage, when it is asked for a step.

        Only where another stage begins before any step is a message of its own needed.
        """
        if self._beginning is not None:
            before, then = self._beginning
            header = {"kind": "begin", "number": self.n_stages, "stage": described(before)}
            self._asked(f"the beginning of stage {self.n_stages}", header, then, "begun", need=0)
        self.n_stages += 1
        self._beginning = (stage, shared)
        self._sample.begin(stage, shared)
        self._of_stage_so_far = 0

    def resume(self, stage: Stage, shared: State, n_stages: int, n_rounds: int) -> None:
        """Go on with a stage where another server has left it.

        Parameters
        ----------
        stage, shared
            What it was doing, and how far it had come.
        n_stages, n_rounds : int
            How many there were. It may have asked for another round, whose answers are lost.
        """
        self.n_stages, self.n_rounds = n_stages, n_rounds + 1
        self._sample.begin(stage, shared)
        self._of_stage_so_far = 0

    def round(self, stage: Stage, loss: Loss, shared: State) -> Message:
        """Let every site take a step; return the sum of the messages, in the order of the names."""
        self.n_rounds += 1
        self._beginning = None
        header = self._of_stage("step", stage, loss) | {"round": self.n_rounds}
        what = f"round {self.n_rounds}"
        self._of_stage_so_far += 1
        if self._of_stage_so_far <= PATTERNS:
            with np.errstate(all="ignore"):
                self._pattern = self._sample.round(stage, loss, shared)
        pattern = {name: np.asarray(value) for name, value in self._pattern.items()}
        present, total = self._summed(what, stage, header, shared, pattern)
        self.has_changed = bool(self.taking_part) and present != self.taking_part
        self.taking_part = present
        return total

    def _summed(
        self, what: str, stage: Stage, header: dict[str, Any], shared: State, pattern: Message
    ) -> tuple[list[str], Message]:
        """Return who took part, and the sum of their messages."""
        replies = self._asked(what, header, shared, "step", pattern=pattern)
        present = sorted(replies)
        messages = [replies[name][1] for name in present]
        return present, {key: sum_in_order([m[key] for m in messages]) for key in pattern}

    def finish(self, stage: Stage, loss: Loss, shared: State, told: Mapping[str, Any]) -> list[str]:
        """Let every site keep its model; return those that did.

        Parameters
        ----------
        stage, loss, shared
            The scoring stage, and where it ended.
        told : mapping
            How the run went, as JSON.
        """
        header = self._of_stage("finish", stage, loss) | {"told": told}
        return sorted(self._asked("the end", header, shared, "done", need=0))

    def locals(self) -> list[State]:
        """Refuse: private states stay with their owners."""
        raise PermissionError(
            "The private states of a federation stay at its sites: each keeps its unique basis "
            "and its scores in a file of its own."
        )

    def close(self) -> None:
        """Hold nothing; the transport belongs to whoever made it."""

    def _of_stage(self, kind: str, stage: Stage, loss: Loss) -> dict[str, Any]:
        return {
            "kind": kind,
            "number": self.n_stages,
            "stage": described(stage),
            "loss": described(loss),
        }

    def _asked(
        self,
        what: str,
        header: dict[str, Any],
        shared: State,
        expected: str,
        *,
        pattern: Message | None = None,
        need: int | None = None,
    ) -> Replies:
        """Send all sites a message; return the replies of those that take part."""
        data = pack(header | {"setup": self.setup}, shared)
        messages = dict.fromkeys(self._names, data)
        return self._sent(what, messages, self._quorum, expected, pattern, need)

    def _sent(
        self,
        what: str,
        messages: Mapping[str, bytes],
        quorum: Quorum,
        expected: str,
        pattern: Message | None = None,
        need: int | None = None,
    ) -> Replies:
        """Send messages, and remember who did not answer as they should."""
        replies, missing = asked(self._transport, messages, quorum, what, expected, need, pattern)
        for site, reason in missing.items():
            self.left_out.append((what, site, reason))
        return replies


def asked(
    transport: Transport,
    messages: Mapping[str, bytes],
    quorum: Quorum,
    what: str,
    expected: str,
    need: int | None = None,
    pattern: Message | None = None,
) -> tuple[Replies, dict[str, str]]:
    """Send sites their messages; return what can be meant of their replies, and what is wrong.

    Parameters
    ----------
    transport : Transport
        How to reach them.
    messages : dict of bytes
        By site, for those to be asked.
    quorum : Quorum
        How many must answer, and when.
    what : str
        What it is about, in words.
    expected : str
        The kind of reply.
    need : int, optional
        How many must answer, where the quorum is not to decide.
    pattern : dict of arrays, optional
        What the arrays of a reply look like.

    Returns
    -------
    replies : dict of (header, arrays)
        By site.
    missing : dict of str
        Why each of the other sites is left out.
    """
    wanted = need if need is not None else quorum.need or len(messages)
    replies: Replies = {}
    missing = dict.fromkeys(messages, "")
    for _ in range(1 + quorum.retries):
        came = transport.send({name: messages[name] for name in missing}, quorum.timeout)
        for name in list(missing):
            missing[name] = f"no answer within {quorum.timeout:g} s"
            if name in came and not (reason := _refused(came[name], expected, pattern)):
                replies[name] = unpack(came[name])
                del missing[name]
            elif name in came:
                missing[name] = reason
        if len(replies) >= wanted:
            break
    arrays = {name: message for name, (_, message) in replies.items()}
    for name, reason in outlying(arrays, quorum.clip if pattern is not None else None).items():
        missing[name] = reason
        del replies[name]
    for name, reason in missing.items():
        LOG.warning("site %r is left out of %s: %s", name, what, reason)
    too_few(what.capitalize(), sorted(replies), wanted, missing)
    return replies, missing


def sample_source(n1: int, dtype: str, width: int, *, plain: bool, centred: bool) -> Source:
    """Return made-up data of the shape and kind of a site's.

    Parameters
    ----------
    n1, dtype, width
        The length of the shared axis, the precision, and how many samples.
    plain : bool
        Whether the data are complete.
    centred : bool
        Whether a centre is fitted along where they are not.

    Examples
    --------
    >>> from heterofactor.federation.engine import sample_source
    >>> sample_source(5, "float64", 3, plain=True, centred=True).shape
    (1, 5, 3)
    """
    # zeros and ones can be observed under any loss
    entries = np.random.default_rng(0).integers(0, 2, (1, n1, width)).astype(dtype)
    if plain:
        return Dense(entries)
    return Masked(entries, None, np.zeros((1, n1, 1), dtype) if centred else None)


def _refused(data: bytes, expected: str, pattern: Message | None) -> str:
    """Say why a reply is left out; an empty string if it is taken."""
    try:
        header, arrays = unpack(data)
    except ValueError as error:
        return str(error)
    if header.get("kind") == "refused":
        return f"it could not answer ({header.get('reason')!s:.200})"
    if header.get("kind") != expected:
        return f"it answered {header.get('kind')!r:.60}, expected {expected!r}"
    return "" if pattern is None else fault(arrays, pattern)
