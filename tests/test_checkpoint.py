"""A run that was killed goes on where it was, and comes to the same answer."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heterofactor import HMF
from heterofactor.checkpoint import Checkpoint
from heterofactor.datasets import make_heterogeneous
from heterofactor.rounds import State
from heterofactor.solvers import Averaging

# A resumed run repeats the same operations on the same numbers, but memory is laid out anew.
ROUNDING = 1e-9


def tables(missing: float = 0.0) -> list[np.ndarray]:
    data = make_heterogeneous(6, 20, 30, 2, 2, noise=0.3, random_state=0)
    rng = np.random.default_rng(0)
    return [np.where(rng.random(X.shape) < missing, np.nan, X) for X in data.sources.values()]


KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "complete": ({"tol": 1e-12}, 0.0),
    "Algorithm 1": ({"solver": "averaging", "max_rounds": 60, "tol": 1e-12}, 0.0),
    "holes": ({"tol": 1e-10}, 0.3),
    "a loss whose threshold is open": ({"loss": "huber", "tol": 1e-10}, 0.2),
    "restarts": ({"n_restarts": 2, "tol": 1e-12}, 0.0),
}


@pytest.mark.filterwarnings("ignore:The fit has not converged")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", [1, 3, 8])
def test_an_interrupted_fit_goes_on(
    kind: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, missing = KINDS[kind]
    given = tables(missing)
    whole = HMF(2, 2, random_state=0, **settings).fit(given)
    path = tmp_path / "run.safetensors"
    model = HMF(2, 2, random_state=0, checkpoint=Checkpoint(str(path), every=0), **settings)
    with monkeypatch.context() as patch:
        interrupt_after(stop, patch)
        model.fit(given)
    if not path.exists():  # it was done before
        assert model.n_rounds_ <= stop
        return
    model.fit(given)
    assert not path.exists()
    assert model.n_rounds_ == whole.n_rounds_ and model.converged_ == whole.converged_
    np.testing.assert_allclose(
        model.history_["value"], whole.history_["value"], rtol=ROUNDING, atol=0
    )
    assert model.history_["start"].tolist() == whole.history_["start"].tolist()
    for one, other in zip(model.reconstruct(), whole.reconstruct(), strict=True):
        np.testing.assert_allclose(one, other, atol=ROUNDING)


def interrupt_after(stop: int, patch: pytest.MonkeyPatch) -> None:
    """Raise what Ctrl-C raises once so many checkpoints are written."""
    from heterofactor.checkpoint import Keeper

    write, written = Keeper.write, []

    def counted(self: Keeper, kept: Any) -> None:
        write(self, kept)
        written.append(kept)
        if len(written) == stop:
            raise KeyboardInterrupt

    patch.setattr(Keeper, "write", counted)


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import os, signal, sys
        import numpy as np
        from heterofactor import HMF
        from heterofactor.checkpoint import Checkpoint, Keeper
        from heterofactor.datasets import make_heterogeneous

        stop = int(sys.argv[1])
        write, written = Keeper.write, []
        def counted(self, kept):
            write(self, kept)
            written.append(kept)
            if len(written) == stop:
                os.kill(os.getpid(), signal.SIGKILL)
        Keeper.write = counted
        data = make_heterogeneous(6, 20, 30, 2, 2, noise=0.3, random_state=0)
        model = HMF(2, 2, solver="averaging", max_rounds=40, tol=1e-3, random_state=0,
                    checkpoint=Checkpoint("run.safetensors", every=0))
        np.save("found.npy", model.fit(data.sources).shared_components_)
        print(len(written))
    """)
    (tmp_path / "program.py").write_text(program)

    def run(stop: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "program.py", str(stop)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    whole = run(10_000)
    assert whole.returncode == 0, whole.stderr
    expected, rounds = np.load(tmp_path / "found.npy"), int(whole.stdout)
    assert run(5).returncode == -signal.SIGKILL
    rest = run(10_000)
    assert rest.returncode == 0, rest.stderr
    assert int(rest.stdout) == rounds - 5
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected, atol=ROUNDING)


def test_a_checkpoint_of_another_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.safetensors"
    keep = Checkpoint(str(path), every=0)
    given = tables()
    with monkeypatch.context() as patch, pytest.warns(Warning, match="interrupted"):
        interrupt_after(1, patch)
        HMF(2, 2, tol=1e-12, random_state=0, checkpoint=keep).fit(given)
    assert path.exists()
    for other, data in (
        (HMF(2, 1, tol=1e-12, random_state=0, checkpoint=keep), given),
        (HMF(2, 2, tol=1e-9, random_state=0, checkpoint=keep), given),
        (HMF(2, 2, tol=1e-12, random_state=0, checkpoint=keep), [3 * X for X in given]),
    ):
        with pytest.raises(ValueError, match="no checkpoint of this fit"):
            other.fit(data)
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged, or no checkpoint"):
        HMF(2, 2, checkpoint=path).fit(given)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        HMF(2, 2, checkpoint=tmp_path / "nowhere" / "run").fit(given)


def test_nothing_is_left_of_a_fit_that_is_done(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    HMF(2, 2, checkpoint=path, random_state=0).fit(tables())
    assert list(tmp_path.iterdir()) == []


def test_a_run_says_that_it_had_finished() -> None:
    """A run that was kept after its last round does no more rounds."""
    from heterofactor.engines import Serial
    from heterofactor.losses import Squared
    from heterofactor.rounds import run
    from heterofactor.sources import Dense

    rng = np.random.default_rng(0)
    engine = Serial([Dense(rng.normal(size=(2, 6, 8)))], [{"unique": np.zeros((2, 6, 1))}])
    solver = Averaging(n_shared=1, tol=1e-3)
    begin: State = solver.start(0.1 * rng.normal(size=(6, 1)))
    done = run(solver, engine, Squared(), begin, max_rounds=5000)
    again = run(solver, engine, Squared(), begin, max_rounds=5000, before=done)
    assert again.converged and again.history == done.history
