"""The two ends of a masked round: a site that masks, and the engine that sees nothing but sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from heterofactor.federation.engine import Federated
from heterofactor.federation.fixed import FixedPoint, flat, shaped
from heterofactor.federation.masking import SEALED_BYTES, Masker, new_key, public_key, unmasked
from heterofactor.federation.measuring import Measuring
from heterofactor.federation.messages import pack
from heterofactor.federation.quorum import too_few
from heterofactor.federation.shamir import SHARE_BYTES
from heterofactor.linalg import to_numpy
from heterofactor.rounds import Message, Stage, State

__all__ = ["SecureFederated", "SiteEnd", "new_key"]

# A sum of complete tables, in units of the mean source, is rounded to steps of 1e-12; others are in
# the units of the data, and how large they are is not known before they are measured.
COMPLETE = FixedPoint(bits=40)
OBSERVED = FixedPoint(bits=60, words=2)
MEASURED = FixedPoint(bits=84, words=3)


class SiteEnd:
    """Masks a site's messages.

    Parameters
    ----------
    name : str
        Of the site.
    key : bytes
        Its private key in this run.

    Examples
    --------
    >>> from heterofactor.federation.secure import SiteEnd, new_key
    >>> len(SiteEnd("north", new_key()).public)
    64
    """

    def __init__(self, name: str, key: bytes) -> None:
        self.name, self._key = name, key

    @property
    def public(self) -> str:
        """The public key, as text."""
        return public_key(self._key).hex()

    def mask(self, asked: Mapping[str, Any], message: Message) -> State:
        """Return a message, masked.

        Parameters
        ----------
        asked : mapping
            Among whom, how many of them are needed, and how numbers are written.
        message : dict of arrays
            What is to be summed.
        """
        masker = self._masker(asked)
        numbers = flat({name: to_numpy(value) for name, value in message.items()})
        words = FixedPoint(*asked["fixed"]).words_of(numbers, len(asked["public"]))
        masked, sealed = masker.mask(words)
        return {"masked": masked, "shares": stacked(sealed, SEALED_BYTES)}

    def tell(self, header: Mapping[str, Any], arrays: State) -> State:
        """Return what lets the server unmask the sum.

        Parameters
        ----------
        header : mapping
            Whose messages came.
        arrays : dict of arrays
            This site's shares of their seeds.
        """
        sent = dict(zip(header["came"], map(bytes, arrays["shares"]), strict=True))
        opened, seeds = self._masker(header["masked"]).tell(sent)
        return {
            "opened": stacked(opened, SHARE_BYTES),
            "seeds": stacked(seeds, SHARE_BYTES),
        }

    def _masker(self, asked: Mapping[str, Any]) -> Masker:
        public = {name: bytes.fromhex(key) for name, key in asked["public"].items()}
        return Masker(self.name, self._key, public, asked["label"], asked["need"])


class SecureFederated(Federated):
    """Run the sources' steps at sites that mask their messages; a `Federated` in all else.

    A round takes two exchanges: the masked messages, and what unmasks their sum. Where that fails,
    because one site dropped out before its message and another after it, it is repeated among
    those that are left, with other masks.

    Examples
    --------
    >>> from heterofactor.federation import Federated
    >>> from heterofactor.federation.secure import SecureFederated
    >>> issubclass(SecureFederated, Federated)
    True
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._public: dict[str, str] = {}

    def begin(self, stage: Stage, shared: State) -> None:
        """Agree on keys with those that have none yet, and begin."""
        self._agree()
        super().begin(stage, shared)

    def resume(self, stage: Stage, shared: State, n_stages: int, n_rounds: int) -> None:
        """Go on, with the keys that the sites still have."""
        self._agree()
        super().resume(stage, shared, n_stages, n_rounds)

    def _agree(self) -> None:
        data = pack({"kind": "key", "setup": self.setup}, {})
        if strangers := [name for name in self._names if name not in self._public]:
            asked = dict.fromkeys(strangers, data)
            replies = self._sent("the agreement on keys", asked, self._quorum, "key", need=0)
            self._public |= {name: header["public"] for name, (header, _) in replies.items()}

    def _summed(
        self, what: str, stage: Stage, header: dict[str, Any], shared: State, pattern: Message
    ) -> tuple[list[str], Message]:
        """Return who took part, and the sum of their messages."""
        fixed = COMPLETE if self.setup["plain"] else OBSERVED
        if isinstance(stage, Measuring):
            fixed = MEASURED
        quorum = replace(self._quorum, clip=None)
        need = quorum.need or len(self._names)
        among, attempt = sorted(self._public), 0
        while True:
            absent = {n: "it has no key, or dropped out" for n in self._names if n not in among}
            too_few(what.capitalize(), among, need, absent)
            label = f"{self.setup['run']}/{header['round']}/{attempt}"
            masked = {
                "public": {name: self._public[name] for name in among},
                "need": need,
                "attempt": attempt,
                "label": label,
                "fixed": [fixed.bits, fixed.words],
            }
            came, answers = self._exchanged(what, header | {"masked": masked}, shared, pattern)
            sums = {name: sent["masked"] for name, sent in came.items()}
            words = unmasked(sums, answers, among, need, label)
            if words is not None:
                return sorted(came), shaped(fixed.numbers_of(words), pattern)
            among, attempt = sorted(answers), attempt + 1

    def _exchanged(
        self, what: str, header: dict[str, Any], shared: State, pattern: Message
    ) -> tuple[dict[str, State], dict[str, Any]]:
        """Return the masked messages that came, and what those told who sent them."""
        asked = header["masked"]
        among, need = list(asked["public"]), asked["need"]
        quorum = replace(self._quorum, clip=None, need=need)
        size = sum(int(np.size(value)) for value in pattern.values()) * asked["fixed"][1]
        wanted: Message = {
            "masked": np.zeros(size, np.uint64),
            "shares": np.zeros((len(among), SEALED_BYTES), np.uint8),
        }
        data = pack(header | {"setup": self.setup}, shared)
        replies = self._sent(what, dict.fromkeys(among, data), quorum, "step", wanted)
        came = {name: replies[name][1] for name in sorted(replies)}
        gone = [name for name in among if name not in came]
        place = [header["round"], asked["attempt"]]
        question = {
            "kind": "unmask",
            "setup": self.setup,
            "masked": asked,
            "came": list(came),
            "place": place,
        }
        messages = {
            name: pack(
                question, {"shares": np.stack([sent["shares"][k] for sent in came.values()])}
            )
            for k, name in enumerate(among)
            if name in came
        }
        wanted = {
            "opened": np.zeros((len(came), SHARE_BYTES), np.uint8),
            "seeds": np.zeros((len(gone), SHARE_BYTES), np.uint8),
        }
        told = self._sent(f"the unmasking of {what}", messages, quorum, "unmasked", wanted)
        answers = {
            name: (
                dict(zip(came, map(bytes, arrays["opened"]), strict=True)),
                dict(zip(gone, map(bytes, arrays["seeds"]), strict=True)),
            )
            for name, (_, arrays) in told.items()
        }
        return came, answers


def stacked(parts: Mapping[str, bytes], size: int) -> np.ndarray[Any, Any]:
    """Return byte strings of one size as the rows of an array, in the order of their names.

    Parameters
    ----------
    parts : dict of bytes
        By name.
    size : int
        How many bytes each has.

    Examples
    --------
    >>> from heterofactor.federation.secure import stacked
    >>> stacked({"b": b"12", "a": b"34"}, 2).tolist()
    [[51, 52], [49, 50]]
    """
    joined = b"".join(parts[name] for name in sorted(parts))
    return np.frombuffer(joined, np.uint8).reshape(-1, size)
