"""Who takes part in a round: those who answer in time, and with numbers that can be meant."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from heterofactor.rounds import Message

LOG = logging.getLogger("heterofactor.federation")
# Norms can be compared with those of the others where there are so many sites.
COMPARABLE = 3
# Near the answer some numbers are nothing but rounding, of which none is too large.
ROUNDING = 1e-12


class TooFewSites(RuntimeError):
    """Fewer sites than were asked for took part in a round.

    Examples
    --------
    >>> from heterofactor.federation import TooFewSites
    >>> issubclass(TooFewSites, RuntimeError)
    True
    """


@dataclass(frozen=True)
class Quorum:
    """How many sites a round needs, how long it waits for them, and what it takes from them.

    Parameters
    ----------
    need : int, optional
        Sites that must take part in every round; all of them unless given.
    timeout : float
        Seconds to wait for an answer.
    retries : int
        How often those that are missing are asked again where there are fewer than `need`.
    clip : float, optional
        Leave a site out of a round if the norm of an array of its message is more than so many
        times the median of all sites'. Where messages are masked nobody can tell, and with fewer
        than three sites there is nothing to compare with.

    Examples
    --------
    >>> from heterofactor.federation import Quorum
    >>> Quorum(need=2, timeout=60.0).retries
    0
    """

    need: int | None = None
    timeout: float = 600.0
    retries: int = 0
    clip: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.need is not None and (not isinstance(self.need, Integral) or self.need < 1):
            raise ValueError(f"need is {self.need!r}: expected a number of sites, at least 1.")
        for name, given in (("timeout", self.timeout), ("clip", self.clip)):
            if given is not None and not (isinstance(given, Real) and given > 0):
                raise ValueError(f"{name} is {given!r}: expected a positive number.")
        if not isinstance(self.retries, Integral) or self.retries < 0:
            raise ValueError(f"retries is {self.retries!r}: expected an integer from zero on.")


def fault(message: Message, pattern: Message) -> str:
    """Say what is wrong with a message; an empty string if it is like the pattern.

    Parameters
    ----------
    message : dict of arrays
        From a site.
    pattern : dict of arrays
        A message of the same stage about other data.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.quorum import fault
    >>> fault({"value": np.zeros(2)}, {"value": np.zeros(3)})
    "its 'value' has shape (2,), expected (3,)"
    """
    if message.keys() != pattern.keys():
        return f"it sent {sorted(message)}, expected {sorted(pattern)}"
    for name, expected in pattern.items():
        found = np.asarray(message[name])
        if found.shape != np.shape(expected):
            return f"its {name!r} has shape {found.shape}, expected {np.shape(expected)}"
        if found.dtype != np.asarray(expected).dtype:
            return f"its {name!r} has dtype {found.dtype}, expected {np.asarray(expected).dtype}"
        # before the first step of Algorithm 1, nobody has a value yet: infinity is an answer there
        if np.isfinite(expected).all() and not np.isfinite(found).all():
            return f"its {name!r} is not finite"
    return ""


def outlying(messages: Mapping[str, Message], clip: float | None) -> dict[str, str]:
    """Return the sites whose messages are too large, and why.

    Parameters
    ----------
    messages : dict of messages
        By site.
    clip : float, optional
        How many times the median norm is too large.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.quorum import outlying
    >>> outlying({name: {"value": np.array(x)} for name, x in zip("abc", (1.0, 2.0, 99.0))}, 10.0)
    {'c': "the norm of its 'value' is 99, the median of all sites' 2"}
    """
    found: dict[str, str] = {}
    if clip is None or len(messages) < COMPARABLE:
        return found
    for name in next(iter(messages.values())):
        sizes = {site: float(np.linalg.norm(message[name])) for site, message in messages.items()}
        median = float(np.median(list(sizes.values())))
        for site, size in sizes.items():
            if np.isfinite(median) and size > max(clip * median, ROUNDING):
                found[site] = (
                    f"the norm of its {name!r} is {size:.3g}, the median of all sites' {median:.3g}"
                )
    return found


def too_few(what: str, present: Sequence[str], need: int, missing: Mapping[str, str]) -> None:
    """Raise an error that names the sites that are missing, if too many are.

    Parameters
    ----------
    what : str
        What they were needed for.
    present : sequence of str
        The sites that took part.
    need : int
        How many have to.
    missing : dict of str
        Why each of the others did not.

    Examples
    --------
    >>> from heterofactor.federation.quorum import too_few
    >>> too_few("Round 3", ["north"], 2, {"south": "no answer within 60 s"})
    Traceback (most recent call last):
    heterofactor.federation.quorum.TooFewSites: Round 3: 1 of 2 sites took part, and need=2...
    """
    if len(present) >= need:
        return
    reasons = "; ".join(f"site {site!r}: {reason}" for site, reason in missing.items())
    raise TooFewSites(
        f"{what}: {len(present)} of {len(present) + len(missing)} sites took part, and "
        f"need={need}. Left out: {reasons}. Start what has stopped (a site goes on from its own "
        "checkpoint), allow more time or retries, or lower need."
    )
