"""Dask: the answer of serial on any number of workers, also when one of them dies."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from heterofactor import HMF
from heterofactor.checks.problem import Problem, make_problem
from heterofactor.datasets import make_heterogeneous
from heterofactor.engines import DaskEngine, Serial
from heterofactor.engines.dask import MALLOC
from heterofactor.losses import Squared
from heterofactor.rounds import Result, State, run
from heterofactor.solvers import Averaging

distributed = pytest.importorskip("distributed")

# Workers may sum products in another order than this process: the last digits.
ROUNDING = 1e-12


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    import dask

    environment = MALLOC | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with dask.config.set({"distributed.nanny.pre-spawn-environ": environment}):
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        )
    with cluster, distributed.Client(cluster, set_as_default=False) as made:
        yield made


def averaged(problem: Problem, engine: Any, kill: Any = None) -> Result:
    """Run 30 rounds of Algorithm 1, and call `kill` in the middle."""

    def watch(number: int, value: float, shared: State) -> None:
        if kill is not None and number == 7:
            kill()

    solver = Averaging(n_shared=2, tol=1e-12)  # never met
    shared = solver.start(0.1 * problem.basis)
    engine.begin(solver, shared)
    return run(solver, engine, Squared(), shared, max_rounds=30, watch=watch)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_answer_is_that_of_serial(client: Any, missing: float) -> None:
    data = make_heterogeneous(30, 40, 50, 2, 1, noise=0.1, random_state=0)
    rng = np.random.default_rng(0)
    tables = [np.where(rng.random(X.shape) < missing, np.nan, X) for X in data.sources.values()]
    one, other = (
        HMF(2, 1, engine=engine, random_state=0).fit(tables).shared_components_
        for engine in ("serial", DaskEngine(client))
    )
    np.testing.assert_allclose(other.T @ other, one.T @ one, atol=1e-8)


def test_the_answer_does_not_depend_on_the_number_of_workers(client: Any) -> None:
    problem = make_problem(2, 0.1)
    stacks = tuple((k,) for k in range(4))
    found = []
    for workers in (1, 2):
        client.cluster.scale(workers)
        client.wait_for_workers(workers)
        engine = DaskEngine(client)(problem.sources(stacks), problem.locals(stacks))
        found.append(averaged(problem, engine).shared["basis"])
        engine.close()
    assert np.array_equal(*found)


def test_a_worker_that_is_killed_changes_nothing(client: Any) -> None:
    problem = make_problem(2, 0.1)
    serial = averaged(problem, Serial(problem.sources(), problem.locals()))
    engine = DaskEngine(client)(problem.sources(), problem.locals())

    def kill() -> None:
        pids = client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    found = averaged(problem, engine, kill)
    assert len(found.history) == 30
    np.testing.assert_allclose(found.shared["basis"], serial.shared["basis"], atol=ROUNDING)
    for state, expected in zip(engine.locals(), serial_locals(problem), strict=True):
        np.testing.assert_allclose(state["unique"], expected["unique"], atol=ROUNDING)
    engine.close()


def serial_locals(problem: Problem) -> list[State]:
    engine = Serial(problem.sources(), problem.locals())
    averaged(problem, engine)
    return engine.locals()


def test_the_current_client_is_used(client: Any) -> None:
    data = make_heterogeneous(4, 10, 12, 1, 1, noise=0.1, random_state=0)
    with client.as_current():
        model = HMF(1, 1, engine="dask", random_state=0).fit(data.sources)
    assert model.converged_


def test_an_address_is_connected_to(client: Any) -> None:
    data = make_heterogeneous(4, 10, 12, 1, 1, noise=0.1, random_state=0)
    address = client.scheduler_info()["address"]
    assert HMF(1, 1, engine=DaskEngine(address), random_state=0).fit(data.sources).converged_


def test_slow_workers_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    # Dask leaves in this process what it set for the workers of other clusters
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.warns(RuntimeWarning, match="MALLOC_MMAP_THRESHOLD_"),
    ):
        DaskEngine(client)([], [])
