"""Every check finds what it looks for: each toy here breaks one promise, and is caught by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from heterofactor import HMF
from heterofactor.checks import check_engine, check_loss, check_model, check_solver, check_source
from heterofactor.checks.requirement import require_close, require_flat
from heterofactor.engines import Serial
from heterofactor.factors import Factors
from heterofactor.linalg import polar
from heterofactor.losses import Squared
from heterofactor.rounds import State
from heterofactor.solvers import Averaging, Grassmann
from heterofactor.sources import Dense

TIMES: dict[str, int] = {"asked": 0}


@dataclass(frozen=True)
class Huber:
    """A right one: quadratic near zero, linear beyond."""

    delta: float = 1.0

    def value(self, m, z):
        off = np.abs(m - z)
        return np.where(off <= self.delta, off**2 / 2, self.delta * (off - self.delta / 2))

    def slope(self, m, z):
        return np.clip(z - m, -self.delta, self.delta)

    def majorise(self, m, z):
        off = np.abs(m - z)
        return self.delta / np.maximum(off, self.delta), m


@dataclass(frozen=True)
class Logistic:
    """A right one, of zeros and ones."""

    def value(self, m, z):
        return np.logaddexp(0, z) - m * z

    def slope(self, m, z):
        return 1 / (1 + np.exp(-z)) - m

    def majorise(self, m, z):
        return z * 0 + m.dtype.type(0.25), z - 4 * self.slope(m, z)


def test_right_losses_pass() -> None:
    check_loss(Huber())
    check_loss(Huber(0.1))
    check_loss(Logistic(), observed=np.array([0.0, 1.0]))


class WrongFactor(Huber):
    def slope(self, m, z):
        return 2 * super().slope(m, z)


class Upcast(Squared):
    def slope(self, m, z):
        return np.asarray(z - m, dtype=float)


class OverwritesData(Squared):
    def value(self, m, z):
        m -= z
        return m**2 / 2


class SumOfEntries(Squared):
    def value(self, m, z):
        return np.sum(super().value(m, z))


class Standardised(Squared):
    def value(self, m, z):
        return super().value(m, z) / np.std(m) if m.size > 2 else super().value(m, z)


class Forgetful(Squared):
    def value(self, m, z):
        TIMES["asked"] += 1
        return super().value(m, z) * TIMES["asked"]


class BelowTheLoss(Huber):
    def majorise(self, m, z):
        w, _ = super().majorise(m, z)
        return w / 2, z - 2 * self.slope(m, z) / w


class Untouched(Huber):
    def majorise(self, m, z):
        w, t = super().majorise(m, z)
        return w, t + 1e-3


class NegativeWeights(Squared):
    def majorise(self, m, z):
        return m * 0 - 1, 2 * z - m


class Infinite(Squared):
    def majorise(self, m, z):
        return m * 0 + np.inf, m


@dataclass
class Thawed(Squared.__bases__[0]):  # type: ignore[misc]
    value, slope, majorise = Squared.value, Squared.slope, Squared.majorise


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (WrongFactor(), "slope is not the derivative of value: off by"),
        (Upcast(), "slope of single precision comes as float64"),
        (OverwritesData(), r"arguments of a loss after its answers\['m'\]"),
        (SumOfEntries(), r"value: shape \(\) for entries"),
        (Standardised(), "value is not elementwise: off by"),
        (Forgetful(), "answers of a loss when asked again"),
        (BelowTheLoss(), "majoriser lies below the loss"),
        (Untouched(), "majoriser's slope at z is not that of the loss"),
        (NegativeWeights(), "weights: as low as -1"),
        (Infinite(), "weights: not finite"),
        (Thawed(), "Thawed is no frozen dataclass"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_broken_losses_are_caught(loss: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_loss(loss)


class NormalWithoutCentre(Dense):
    def normal(self, W):
        return Dense(self.matrix).normal(W)


class EnergyWithoutCentre(Dense):
    @property
    def energy(self):
        return Dense(self.matrix).energy


class NotAdjoint(Dense):
    def rmatmat(self, W):
        return Dense(self.matrix).rmatmat(W)


class NotLinear(Dense):
    def matmat(self, H):
        return super().matmat(H * np.abs(H))


class WrongSlope(Dense):
    def pull(self, loss, W, H):
        value, by_W, by_H = super().pull(loss, W, H)
        return value, by_W, 2 * by_H


class ValueWithoutCentre(Dense):
    def pull(self, loss, W, H):
        _, by_W, by_H = super().pull(loss, W, H)
        return Dense(self.matrix).pull(loss, W, H)[0], by_W, by_H


class AlwaysSquared(Dense):
    def pull(self, loss, W, H):
        return super().pull(Squared(), W, H)


class DriftingSource(Dense):
    def normal(self, W):
        self.matrix[0, 0, 0] += 1e-6
        return super().normal(W)


class OverwritesBasis(Dense):
    def normal(self, W):
        if W.flags.writeable:
            W *= 2
        return super().normal(W)


class DoublePrecision(Dense):
    def normal(self, W):
        return super().normal(W).astype(float)


class TotalEnergy(Dense):
    @property
    def energy(self):
        return super().energy.sum()


class ArrayShape(Dense):
    @property
    def shape(self):
        return np.asarray(super().shape)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NormalWithoutCentre, r"normal is not M \(M'W\): off by"),
        (EnergyWithoutCentre, "energy is not the sum of squares"),
        (NotAdjoint, "rmatmat is not the adjoint of matmat"),
        (NotLinear, "matmat is not linear"),
        (WrongSlope, "slope' times W is not the derivative of the value"),
        (ValueWithoutCentre, "value is not the loss of all entries"),
        (AlwaysSquared, r"pull under Huber\(threshold=1.0\): value"),
        (DriftingSource, "answers of a source when asked again"),
        (OverwritesBasis, r"arguments of a source after its answers\['W'\]"),
        (DoublePrecision, "normal: float64, where the data are of float32"),
        (TotalEnergy, r"energy: shape \(\)"),
        (ArrayShape, "expected three ints"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_broken_sources_are_caught(kind: type[Dense], message: str) -> None:
    dtype = np.float32 if kind is DoublePrecision else np.float64
    matrix = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(dtype) + dtype(1)
    centre = matrix.mean(axis=-1, keepdims=True)
    check_source(Dense(matrix.copy(), centre))
    with pytest.raises(AssertionError, match=message):
        check_source(kind(matrix, centre))


@dataclass(frozen=True)
class Counting(Grassmann):
    """Keeps a count of its own, outside of its settings."""

    def step(self, source, loss, shared, local):
        object.__setattr__(self, "count", getattr(self, "count", 0) + 1)
        new, message = super().step(source, loss, shared, local)
        return new, message | {"curvature": message["curvature"] * (1 + 0.01 * self.count)}


@dataclass(frozen=True)
class Caching(Grassmann):
    """Keeps an attribute besides its settings, and does nothing with it."""

    def merge(self, shared, total):
        object.__setattr__(self, "last", total)
        return super().merge(shared, total)


@dataclass(frozen=True)
class Remembering(Grassmann):
    """Keeps what it saw in a list among its settings, and does nothing with it."""

    seen: list = field(default_factory=list)

    def merge(self, shared, total):
        self.seen.append(float(total["value"]))
        return super().merge(shared, total)


@dataclass(frozen=True)
class ClassMemory(Grassmann):
    """Carries the last message over in a variable of the module."""

    def step(self, source, loss, shared, local):
        TIMES["asked"] += 1
        new, message = super().step(source, loss, shared, local)
        return new, message | {"value": message["value"] + 1e-9 * (TIMES["asked"] % 2)}


@dataclass(frozen=True)
class OverwritesLocal(Grassmann):
    def step(self, source, loss, shared, local):
        answer = super().step(source, loss, shared, local)
        local["image"] *= 2
        return answer


@dataclass(frozen=True)
class OverwritesShared(Grassmann):
    def merge(self, shared, total):
        found = super().merge(shared, total)
        shared["basis"][:] = found["basis"]
        return found


@dataclass(frozen=True)
class OverwritesSource(Grassmann):
    def init(self, source, shared, local):
        source.matrix[:] /= np.linalg.norm(source.matrix) + 1
        return super().init(source, shared, local)


@dataclass(frozen=True)
class Nested(Grassmann):
    def init(self, source, shared, local):
        return super().init(source, shared, local) | {"more": {"deep": np.zeros(1)}}

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        return new | {"more": local["more"]}, message


@dataclass(frozen=True)
class GlobalDraws(Grassmann):
    def init(self, source, shared, local):
        found = super().init(source, shared, local)
        return found | {"image": found["image"] + np.random.random(found["image"].shape)}  # noqa: NPY002


@dataclass(frozen=True)
class OneForEach(Grassmann):
    """Sends a number for each matrix of a stack, which cannot be summed with other stacks'."""

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        return new, message | {"each": source.energy}


@dataclass(frozen=True)
class MeansNotSums(Grassmann):
    """Weighs stacks the same, however many sources they hold."""

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        return new, {name: value / source.shape[0] for name, value in message.items()}


@dataclass(frozen=True)
class GivesUp(Grassmann):
    """Says that it has finished, and that nothing is left, after the third round."""

    def merge(self, shared, total):
        found = super().merge(shared, total)
        rounds = shared.get("rounds", np.zeros(())) + 1
        gradient = found["gradient"] if rounds < 3 else found["gradient"] * 0
        return found | {"rounds": rounds, "gradient": gradient}


@dataclass(frozen=True)
class OwnUnique(Grassmann):
    """Forgets to keep the unique basis orthogonal to the shared one."""

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        return new | {"unique": new["unique"] + 0.1 * shared["basis"][:, :1]}, message


@dataclass(frozen=True)
class RandomUnique(Grassmann):
    """Finds the shared basis, and answers with unique ones of no worth."""

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        basis = shared["trial"]
        drawn = np.random.default_rng(0).normal(size=new["unique"].shape)
        drawn -= basis @ (basis.T @ drawn)
        return new | {"unique": drawn.astype(basis.dtype)}, message


@dataclass(frozen=True)
class Uphill(Grassmann):
    """Reports a value that has nothing to do with its progress."""

    def merge(self, shared, total):
        rounds = shared.get("rounds", np.zeros(())) + 1
        found = super().merge(shared | {"value": shared.get("true", shared["value"])}, total)
        value = found["value"] * (1 if rounds % 3 else 1.01)
        return found | {"rounds": rounds, "true": found["value"], "value": -np.abs(value)}


@dataclass(frozen=True)
class ScaleBound(Averaging):
    """Has a step in the units of the data, but denies it."""

    @property
    def scale_free(self) -> bool:
        return True


@dataclass(frozen=True)
class Narrowed(Grassmann):
    """Answers with fewer unique directions than were asked for."""

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        return new | {"unique": new["unique"][..., :1]}, message


@dataclass(frozen=True)
class Widened(Grassmann):
    """Counts in double precision, whatever comes in."""

    def merge(self, shared, total):
        found = super().merge(shared, total)
        return found | {"value": np.asarray(found["value"], dtype=float)}


@dataclass(frozen=True)
class FirstSourceOnly(Grassmann):
    """Lets the first matrix of a stack speak for all of them, from the second round on."""

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        if np.isfinite(shared["value"]) and source.shape[0] > 1:
            one = replace(source, matrix=source.matrix[:1])
            own = {name: value[:1] for name, value in local.items()}
            message = super().step(one, loss, shared, own)[1]
            message = {name: value * source.shape[0] for name, value in message.items()}
        return new, message


@dataclass(frozen=True)
class WrongWhere(Grassmann):
    """Right, but for a condition under which the answer is off by a thousandth."""

    where: Callable[[Any, State, State], bool] = lambda source, shared, local: False

    def start(self, basis):
        return super().start(basis) | {"first": basis[0, 0]}

    def init(self, source, shared, local):
        return super().init(source, shared, local) | {"seed": local["seed"]}

    def step(self, source, loss, shared, local):
        new, message = super().step(source, loss, shared, local)
        wrong = message["value"] * 0 + self.where(source, shared, local)
        return new | {"seed": local["seed"]}, message | {"wrong": wrong}

    def merge(self, shared, total):
        found = super().merge(shared, total)
        if total["wrong"] > 0 and self.finished(found):
            found["basis"] = polar(found["basis"] + found["basis"][:, ::-1] ** 2 / 100)
        return found


def reordered(source: Any, shared: State, local: State) -> bool:
    return source.shape[0] == 2 and int(local["seed"]) == 1


def restacked(source: Any, shared: State, local: State) -> bool:
    return source.shape[0] == 1 and local["unique"].shape[-1] == 2


def turned(source: Any, shared: State, local: State) -> bool:
    return bool(abs(shared["first"]) > 0.1)  # 0.06 in the one basis, 0.13 in the other


def large(source: Any, shared: State, local: State) -> bool:
    return bool(source.energy.max() > 1e4)


def noiseless(source: Any, shared: State, local: State) -> bool:
    return bool(np.linalg.matrix_rank(source.matrix[0]) < source.shape[1])


def single(source: Any, shared: State, local: State) -> bool:
    return source.matrix.dtype == np.float32


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (reordered, "the answer depends on the order of the sources: off by"),
        (restacked, "the answer depends on how the sources are stacked: off by"),
        (turned, "the answer depends on the basis of the start's span: off by"),
        (large, "the answer depends on the units of the data: off by"),
        (noiseless, "the truth is missed without noise: off by"),
        (single, "the answer in single precision is another one: off by"),
    ],
)
def test_a_solver_that_is_wrong_under_one_condition_is_caught(where: Any, message: str) -> None:
    check_solver(WrongWhere(2))
    with pytest.raises(AssertionError, match=message):
        check_solver(WrongWhere(2, where=where))


class Loose(Grassmann):
    """No dataclass of its own, with an attribute that no setting says."""

    def __init__(self, n_shared):
        super().__init__(n_shared)
        object.__setattr__(self, "cache", {})


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (Loose(2), r"keeps state of its own: \['cache'\]"),
        (Counting(2), r"answer of step when asked again\['curvature'\]"),
        (Caching(2), r"a solver after its runs: Caching keeps state of its own: \['last'\]"),
        (Remembering(2), r"its runs changed Remembering\(.*seen=\[\]\) to"),
        (ClassMemory(2), r"answer of step when asked again\['value'\]"),
        (OverwritesLocal(2), r"argument of step after the call\['image'\]"),
        (OverwritesShared(2), r"argument of merge after the call\['basis'\]"),
        (OverwritesSource(2), "the data after a run|asked again"),
        (Nested(2), r"\['more'\]: a dict, not an array"),
        (GlobalDraws(2), r"answer of init when asked again\['image'\]"),
        (OneForEach(2), r"message\['each'\]: shape"),
        (MeansNotSums(2), r"message\['\w+'\] of round 1: that of twins is not twice that of one"),
        (GivesUp(2), "what the fit leaves of the data is not what the best fit leaves: off by"),
        (OwnUnique(2), "a unique basis is not orthogonal to the shared one"),
        (RandomUnique(2), "what the fit leaves of the data is not what the best fit leaves"),
        (Uphill(2), "the value rises from a round to the next: off by"),
        (ScaleBound(2, step_size=0.3, tol=1e-5), "not finished|units of the data"),
        (Narrowed(2), "a unique basis: shape"),
        (Widened(2), r"shared state\['value'\]: float64 where float32 came in"),
        (FirstSourceOnly(2), "what the fit leaves of the data"),
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value):RuntimeWarning")
def test_broken_solvers_are_caught(solver: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_solver(solver, max_rounds=1000)


class DropsLast(Serial):
    def round(self, stage, loss, shared):
        kept = Serial(self.sources[:-1] or self.sources, self._local[:-1] or self._local)
        total = kept.round(stage, loss, shared)
        self._local = kept.locals() + (self._local[-1:] if len(self.sources) > 1 else [])
        return total


class SumsBackwards(Serial):
    def round(self, stage, loss, shared):
        turned = Serial(self.sources[::-1], self._local[::-1])
        total = turned.round(stage, loss, shared)
        self._local = turned.locals()[::-1]
        return total


class TurnsLocals(Serial):
    def locals(self):
        return super().locals()[::-1]


class StepsTwice(Serial):
    def round(self, stage, loss, shared):
        super().round(stage, loss, shared)
        return super().round(stage, loss, shared)


class BeginsOnce(Serial):
    def begin(self, stage, shared):
        if not hasattr(self, "begun"):
            self.begun = True
            super().begin(stage, shared)


class StaleShared(Serial):
    """Sends out the shared state of the round before."""

    def round(self, stage, loss, shared):
        old, self.old = getattr(self, "old", shared), shared
        return super().round(stage, loss, old)


class SwallowsErrors(Serial):
    def round(self, stage, loss, shared):
        try:
            return super().round(stage, loss, shared)
        except ArithmeticError:
            return {}


class ClosesOnce(Serial):
    def close(self):
        assert not hasattr(self, "closed"), "closed already"
        self.closed = True


class OverwritesGiven(Serial):
    def begin(self, stage, shared):
        for local in self._local:
            local["mark"] = local.get("mark", 0) * 1
            local["begun"] = local.get("begun", np.zeros(1))
        super().begin(stage, shared)


class AtMostFour(Serial):
    def __init__(self, sources: Sequence[Any], local: Sequence[State]) -> None:
        super().__init__(sources[:4], local[:4])


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (DropsLast, r"the sum of round 1 over 2 sources\['count'\]"),
        (SumsBackwards, r"the sum of round 1 over 7 sources\['\w+'\].*off by"),
        (TurnsLocals, "the private state of source 0 after round 1 over 2 sources"),
        (StepsTwice, "the sum of round 1 over 1 source"),
        (BeginsOnce, r"the sum of round 1 over 1 source\['begun'\]"),
        (StaleShared, r"the sum of round 2 over 1 source\['loss'\]"),
        (SwallowsErrors, "error of a step at source 0 of 5 did not reach the caller"),
        (ClosesOnce, "closed already"),
        (OverwritesGiven, "the private state given for source 0"),
        (AtMostFour, "over 7 sources"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_broken_engines_are_caught(engine: type[Serial], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_engine(engine)


def test_an_engine_that_sums_in_another_order_passes_where_it_says_so() -> None:
    check_engine(SumsBackwards, exact=False)
    with pytest.raises(AssertionError, match="over 2 sources"):
        check_engine(DropsLast, exact=False)


class Oblique(HMF):
    """Unique bases that lean towards the shared one."""

    def _keep(self, factors: Factors, centres: Any, tables: Any) -> None:
        leaning = {
            n: b + 1e-7 * factors.shared_basis[:, :1] for n, b in factors.unique_bases.items()
        }
        super()._keep(replace(factors, unique_bases=leaning), centres, tables)


class LongBasis(HMF):
    def _keep(self, factors: Factors, centres: Any, tables: Any) -> None:
        super()._keep(replace(factors, shared_basis=2 * factors.shared_basis), centres, tables)


class SmallEnergy(HMF):
    """Sums of squares before a part of the data was looked at."""

    def _keep(self, factors: Factors, centres: Any, tables: Any) -> None:
        smaller = {name: energy / 2 for name, energy in factors.energy.items()}
        super()._keep(replace(factors, energy=smaller), centres, tables)


class ForgottenCentre(HMF):
    def reconstruct(self, name=None, *, part="both"):
        found = super().reconstruct(name, part=part)
        return found - self.centres_[name] if part == "both" else found


class SumsNotShares(HMF):
    @property
    def explained_variance_ratio_(self):
        return self.explained_variance_.drop(columns="total")


class OtherScores(HMF):
    def fit_transform(self, X, y=None, *, sources=None):
        scores = super().fit_transform(X, y, sources=sources)
        for table in scores.values() if isinstance(scores, dict) else [scores]:
            table += 1e-6
        return scores


class CentresInPlace(HMF):
    def fit(self, X, y=None, *, sources=None):
        if isinstance(X, dict):
            for table in X.values():
                table -= table.mean(axis=0)
        return super().fit(X, y, sources=sources)


class ChangesParameters(HMF):
    def fit(self, X, y=None, *, sources=None):
        self.max_rounds = 501
        return super().fit(X, y, sources=sources)


class ReturnsNothing(HMF):
    def fit(self, X, y=None, *, sources=None):
        super().fit(X, y, sources=sources)


class WarmStart(HMF):
    """A second fit sees what the first one saw."""

    def fit(self, X, y=None, *, sources=None):
        if isinstance(X, dict) and hasattr(self, "factors_"):
            X = {name: table + 0.1 * self.reconstruct()[name] for name, table in X.items()}
        return super().fit(X, y, sources=sources)


class DropsLabels(HMF):
    """Cuts one labelled table into equal pieces, whatever the labels say."""

    def fit(self, X, y=None, *, sources=None):
        if sources is not None:
            sources = np.sort(np.arange(len(sources)) % 4)
        return super().fit(X, y, sources=sources)


class ListsBackwards(HMF):
    def fit(self, X, y=None, *, sources=None):
        if isinstance(X, list):
            X = X[::-1]
        return super().fit(X, y, sources=sources)


class OrderMatters(HMF):
    """Weighs the first samples of a table more."""

    def fit(self, X, y=None, *, sources=None):
        if isinstance(X, dict):
            X = {n: t * np.linspace(1.1, 1, len(t), dtype=t.dtype)[:, None] for n, t in X.items()}
        return super().fit(X, y, sources=sources)


class BoastfulScore(HMF):
    def score(self, X, y=None, *, sources=None):
        return 1.01


class DoubleComponents(HMF):
    @property
    def shared_components_(self):
        return super().shared_components_.astype(float)


class CloneLoses(HMF):
    def __sklearn_clone__(self):
        return type(self)(tol=1e-3)


class TransposesBadly(HMF):
    """Takes two of the features for shared samples."""

    def fit(self, X, y=None, *, sources=None):
        if self.shared_axis == "samples" and self.centre is None and isinstance(X, dict):
            X = {name: table[::-1] for name, table in X.items()}
        return super().fit(X, y, sources=sources)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Oblique,
            r"unique components of 'source0' are not orthogonal to the shared ones .* off by",
        ),
        (LongBasis, "the shared components are not orthonormal"),
        (SmallEnergy, "a share of variance is not within 0 and 1|leaves of 'source0' is not"),
        (ForgottenCentre, "the parts of 'source0' and its centre"),
        (SumsNotShares, "the shares of variance do not add up to one"),
        (OtherScores, "fit_transform is not fit and transform"),
        (CentresInPlace, r"the tables after fit\['source0'\]"),
        (ChangesParameters, "fit changes parameters"),
        (ReturnsNothing, "fit does not return the model"),
        (WarmStart, "fitting again"),
        (DropsLabels, "one table with labels .* is another fit than a dict"),
        (ListsBackwards, "a list of tables .* is another fit than a dict"),
        (OrderMatters, "is not its residual variance|depends on the order of the samples"),
        (BoastfulScore, "score is 1.01, above 1"),
        (DoubleComponents, "components of single precision come as float64"),
        (CloneLoses, "clone: the copy has another tol"),
        (TransposesBadly, "the transposed problem has another answer"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_broken_models_are_caught(model: type[HMF], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_model(model())


def test_what_is_not_a_number_is_not_close() -> None:
    with pytest.raises(AssertionError, match="a value: off by nan"):
        require_close("a value", np.array([1.0, np.nan]), np.ones(2), within=1.0)
    with pytest.raises(AssertionError, match=r"a value: shape \(2,\), expected \(1,\)"):
        require_close("a value", np.ones(2), np.ones(1), within=1.0)
    require_close("a value", np.array([np.inf]), np.array([np.inf]), within=0.0)


@pytest.mark.parametrize("state", [[], {"a": 1.0}, {1: np.ones(1)}, {"a": [np.ones(1)]}], ids=str)
def test_states_are_flat_dicts_of_arrays(state: Any) -> None:
    with pytest.raises(AssertionError, match="a state"):
        require_flat("a state", state)
