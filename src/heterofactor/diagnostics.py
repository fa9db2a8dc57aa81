"""When to trust a fit: whether it was solved, and whether shared and unique can be told apart."""

from __future__ import annotations

from dataclasses import dataclass

# Below these the sentences of `Diagnostics` turn from reassurance to warning.
CLEAR_START = 0.8
HALF = 0.5
ALIKE = 0.1


@dataclass(frozen=True)
class Diagnostics:
    r"""What is known about how far a fit can be trusted; printed as sentences.

    Attributes
    ----------
    stationarity : float
        Relative gradient at the end: zero at an exact stationary point.
    converged : bool
        Whether the solver finished by itself.
    stopped : str
        Why it stopped.
    start : str
        Which start led to the answer.
    agreement : float or None
        Eigenvalue of the last shared direction in the mean projection on the sources' leading
        spaces: 1 where every source has it. None where the start was random.
    misalignment : float or None
        The paper's :math:`\theta`: near 0, the unique parts look alike. None for a single source.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> data = make_heterogeneous(noise=0.05, random_state=0)
    >>> print(HMF(3, 3, random_state=0).fit(data.sources).diagnostics_)
    Solved: the relative gradient fell below 1e-08 (spectral start).
    Every source has the shared directions: agreement ... of 1.
    The unique parts differ: misalignment ... (0: all alike, 1: nothing in common).
    """

    stationarity: float
    converged: bool
    stopped: str
    start: str
    agreement: float | None
    misalignment: float | None

    def __str__(self) -> str:
        """Say it in sentences."""
        solved = "Solved" if self.converged else "Not solved"
        lines = [f"{solved}: {self.stopped} ({self.start} start)."]
        if self.agreement is not None:
            where = f"agreement {self.agreement:.2f} of 1."
            if self.agreement >= CLEAR_START:
                lines.append(f"Every source has the shared directions: {where}")
            elif self.agreement >= HALF:
                lines.append(f"Some sources have the last shared direction only in part: {where}")
            else:
                lines.append(
                    f"The last shared direction is weak or missing in many sources: {where} Fewer "
                    "shared components may be truer."
                )
        if self.misalignment is None:
            return "\n".join(lines)
        where = f"misalignment {self.misalignment:.2f} (0: all alike, 1: nothing in common)."
        lines.append(
            f"The unique parts differ: {where}"
            if self.misalignment >= ALIKE
            else f"Some direction is in nearly every unique part: {where} More shared components "
            "may be truer."
        )
        return "\n".join(lines)
