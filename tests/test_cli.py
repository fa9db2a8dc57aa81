"""The command line gives what HMF gives in Python, and every error of the user in one line."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import heterofactor
from heterofactor import HMF
from heterofactor.cli import main
from heterofactor.datasets import load_mice_protein, make_heterogeneous
from heterofactor.files import load
from heterofactor.reading import read_sources
from heterofactor.solvers import Averaging


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def tables() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    names = [f"f{k}" for k in range(6)]
    return {
        name: pd.DataFrame(
            rng.normal(size=(n, 6)),
            pd.Index([f"{name}{k}" for k in range(n)], name="sample"),
            pd.Index(names),
        )
        for name, n in (("north", 9), ("south", 12))
    }


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name, table in tables().items():
        table.to_csv(tmp_path / f"{name}.csv")
    return [tmp_path / "north.csv", tmp_path / "south.csv"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


RANKS = ("--shared", 2, "--unique", 1)


def assert_refused(result: Result, *parts: str) -> None:
    """Check that the user reads one line on stderr, and no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


def assert_equal_fit(one: HMF, other: HMF) -> None:
    assert one.source_names_ == other.source_names_
    assert np.allclose(one.shared_components_, other.shared_components_, atol=1e-10)
    pd.testing.assert_frame_equal(one.explained_variance_ratio_, other.explained_variance_ratio_)


def test_fit_gives_what_python_gives(files, out):
    result = run("fit", *files, *RANKS, "--out", out)
    assert result.exit_code == 0, result.output
    model = HMF(2, 1, random_state=0).fit(tables())
    assert_equal_fit(load(out), model)
    for name, row in model.explained_variance_ratio_.iterrows():
        line = next(line for line in result.stdout.splitlines() if line.startswith(str(name)))
        assert line.split()[1:] == [f"{100 * share:.1f}" for share in row]
    assert str(model.diagnostics_) in result.stdout


def test_every_option_reaches_the_model(files, out):
    options = ("--centre", "none", "--scale", "source", "--solver", "averaging", "--tol", 0.1,
               "--max-rounds", 300, "--restarts", 1, "--seed", 5)  # fmt: skip
    result = run("fit", *files, "--shared", 1, "--unique", "1,south=2", "--out", out, *options)
    assert result.exit_code == 0, result.output
    expected = HMF(1, {"north": 1, "south": 2}, centre=None, scale="source", solver="averaging",
                   tol=0.1, max_rounds=300, n_restarts=1, random_state=5)  # fmt: skip
    model = load(out)
    assert model.get_params() == expected.get_params()
    assert_equal_fit(model, expected.fit(tables()))


def test_sources_may_share_their_samples(tmp_path, out):
    for name, width in (("one", 4), ("two", 5)):
        table = np.random.default_rng(width).normal(size=(9, width))
        np.save(tmp_path / f"{name}.npy", table)
    files = (tmp_path / "one.npy", tmp_path / "two.npy")
    scores = tmp_path / "scores"
    result = run(
        "fit", *files, *RANKS, "--out", out, "--shared-axis", "samples", "--scores", scores
    )
    assert result.exit_code == 0, result.output
    table = pd.read_csv(scores / "scores.csv", index_col=0)
    assert list(table.columns) == ["shared0", "shared1", "one_unique0", "two_unique0"]
    assert len(table) == 9


@pytest.mark.parametrize(
    "text, ranks", [("2", [2, 2]), ("1,2", [1, 2]), ("south=2,north=1", [1, 2])]
)
def test_unique_ranks_by_number_by_order_or_by_name(files, out, text, ranks):
    assert run("fit", *files, "--shared", 1, "--unique", text, "--out", out).exit_code == 0
    assert [len(basis) for basis in load(out).unique_components_.values()] == ranks


def test_scores_are_written_for_every_source(files, out, tmp_path):
    folder = tmp_path / "scores"
    unique = ("--shared", 2, "--unique", "1,2")
    assert run("fit", *files, *unique, "--out", out, "--scores", folder).exit_code == 0
    scores = load(out).transform(tables())
    for name, table in tables().items():
        written = pd.read_csv(folder / f"{name}.csv", index_col=0)
        assert np.array_equal(written, scores[name])
        assert list(written.index) == list(table.index)
    assert list(written.columns) == ["shared0", "shared1", "unique0", "unique1"]


@pytest.mark.parametrize("kind", ["csv", "csv ;", "tsv", "parquet", "npy", "npz", "labelled"])
def test_every_kind_of_file_gives_the_same_fit(tmp_path, out, kind):
    paths, more = [], []
    whole = pd.concat(tables().values())
    for name, table in tables().items():
        path = tmp_path / f"{name}.{kind.split()[0]}"
        paths.append(path)
        if kind.startswith(("csv", "tsv")):
            separator = {"csv": ",", "csv ;": ";", "tsv": "\t"}[kind]
            table.to_csv(path, sep=separator)
        elif kind == "parquet":
            table.to_parquet(path)
        elif kind == "npy":
            np.save(path, table)
    if kind == "npz":
        paths = [tmp_path / "both.npz"]
        np.savez(paths[0], **tables())
    elif kind == "labelled":
        whole["where"] = ["north"] * 9 + ["south"] * 12
        paths, more = [tmp_path / "both.csv"], ["--source-column", "where"]
        whole.sample(frac=1, random_state=0).sort_values("where").to_csv(paths[0])
    result = run("fit", *paths, *RANKS, "--out", out, *more)
    assert result.exit_code == 0, result.output
    assert_equal_fit(load(out), HMF(2, 1, random_state=0).fit(tables()))


@pytest.mark.parametrize(
    "text, shape, columns, index",
    [
        ("1,2\n3,4\n", (2, 2), [0, 1], [0, 1]),
        ("a,b\n1,2\n3,4\n", (2, 2), ["a", "b"], [0, 1]),
        (",a,b\n0,1,2\n1,3,4\n", (2, 2), ["a", "b"], [0, 1]),
        ("mouse,a,b\nm1,1,2\nm2,3,4\n", (2, 2), ["a", "b"], ["m1", "m2"]),
        ("m1,1,2\nm2,3,4\n", (2, 2), [0, 1], ["m1", "m2"]),
        ("year,2001,2002\n1,2,3\n4,5,6\n", (2, 3), ["year", "2001", "2002"], [0, 1]),
        ("1,,2\n3,4,5\n", (2, 3), [0, 1, 2], [0, 1]),
        ("a,b\nNA,2\n3,nan\n", (2, 2), ["a", "b"], [0, 1]),
        ("a\n1\n2\n", (2, 1), ["a"], [0, 1]),
        ("2013-03-01,1,2\n2013-03-02,3,4\n", (2, 2), [0, 1], ["2013-03-01", "2013-03-02"]),
    ],
)
def test_header_and_index_are_found_out(tmp_path, text, shape, columns, index):
    (tmp_path / "a.csv").write_text(text)
    table = read_sources([tmp_path / "a.csv"])["a"]
    assert table.shape == shape
    assert list(table.columns) == columns
    assert list(table.index) == index


def test_header_and_index_may_be_said(tmp_path, out):
    path = tmp_path / "a.csv"
    path.write_text("1,2,3,10\n4,5,7,11\n7,8,8,12\n3,1,1,13\n5,4,2,14\n")
    said = ("--header", "--index-col", "10")
    assert run("fit", path, "--shared", 1, "--unique", 0, "--out", out, *said).exit_code == 0
    assert list(load(out).feature_names_in_) == ["1", "2", "3"]
    assert list(load(out).reconstruct("a").index) == [11, 12, 13, 14]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_missing_file_is_named(out):
    assert_refused(run("fit", "no.csv", *RANKS, "--out", out), "no.csv", "no such file")


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.npz", "a.parquet"])
def test_an_unreadable_file_is_named(tmp_path, out, name):
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe\x00 no table \x81")
    assert_refused(run("fit", path, *RANKS, "--out", out), name, "cannot be read")


def test_an_unknown_kind_of_file_is_refused(tmp_path, out):
    path = write(tmp_path / "a.xlsx", "")
    assert_refused(run("fit", path, *RANKS, "--out", out), "a.xlsx", ".csv, .tsv, .parquet")


def test_what_is_no_number_is_named_by_file_and_column(tmp_path, out):
    path = write(tmp_path / "a.csv", "x,y\n1,2\n3,tall\n")
    assert_refused(run("fit", path, *RANKS, "--out", out), "a.csv", "'y'", "'tall'", "not numbers")


def test_a_stray_word_does_not_turn_a_column_into_an_index(tmp_path, out):
    path = write(tmp_path / "a.csv", "x,y\n1,2\noops,4\n")
    assert_refused(run("fit", path, *RANKS, "--out", out), "a.csv", "'x'", "'oops'")


def test_different_columns_are_named(files, tmp_path, out):
    other = write(tmp_path / "west.csv", "f0,f1\n1,2\n3,4\n")
    result = run("fit", *files, other, *RANKS, "--out", out)
    assert_refused(result, "'west' has 2 features", "'north' has 6")


def test_infinite_values_are_counted(tmp_path, out):
    path = write(tmp_path / "a.csv", "x,y,z\n1,2,3\n3,inf,4\n5,6,7\n")
    refused = run("fit", path, *RANKS, "--out", out)
    assert_refused(refused, "'a' contains infinity", "row 1, column 1")


def test_ranks_too_large_are_refused(files, out):
    result = run("fit", *files, "--shared", 9, "--unique", 1, "--out", out)
    assert_refused(result, "n_shared=9", "lower n_shared")


@pytest.mark.parametrize("text", ["two", "1,x", "1,2,north=3", "-1", ""])
def test_ranks_that_are_none_are_refused(files, out, text):
    assert_refused(run("fit", *files, "--shared", 1, "--unique", text, "--out", out), "--unique is")


def test_an_unknown_source_in_the_ranks_is_named(files, out):
    result = run("fit", *files, "--shared", 1, "--unique", "1,west=2", "--out", out)
    assert_refused(result, "'west'", "'north', 'south'")


def test_two_sources_of_one_name_are_refused(files, tmp_path, out):
    (tmp_path / "more").mkdir()
    again = write(tmp_path / "more" / "north.csv", "1,2\n3,4\n")
    assert_refused(run("fit", *files, again, *RANKS, "--out", out), "'north' already", "rename")


def test_an_output_folder_must_be_there(files, tmp_path):
    nowhere = tmp_path / "nowhere" / "model.safetensors"
    assert_refused(run("fit", *files, *RANKS, "--out", nowhere), "There is no folder", "--out")


def test_a_model_is_replaced_only_when_asked_to(files, out):
    out.write_text("precious")
    assert_refused(run("fit", *files, *RANKS, "--out", out), "there already", "--force")
    assert out.read_text() == "precious"
    assert run("fit", *files, *RANKS, "--out", out, "--force").exit_code == 0
    assert load(out).n_shared == 2


def test_scores_are_not_mixed_with_other_files(files, tmp_path, out):
    result = run("fit", *files, *RANKS, "--out", out, "--scores", tmp_path)
    assert_refused(result, "not an empty folder")


def test_a_column_of_sources_must_be_there(files, out):
    result = run("fit", files[0], *RANKS, "--out", out, "--source-column", "where")
    assert_refused(result, "'where'", "f0, f1")
    result = run("fit", *files, *RANKS, "--out", out, "--source-column", "where")
    assert_refused(result, "single file")


def test_a_fit_that_has_not_converged_is_an_answer_with_a_warning(files, out):
    result = run("fit", *files, *RANKS, "--out", out, "--max-rounds", 1, "--quiet")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.startswith("Warning: The fit has not converged")
    assert result.stderr.count("\n") == 1
    assert not load(out).converged_


def interrupting(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Let the keyboard interrupt come in the round after so many."""
    merge, count = Averaging.merge, 0

    def interrupted(self, shared, total):
        nonlocal count
        count += 1
        if count > rounds:
            raise KeyboardInterrupt
        return merge(self, shared, total)

    monkeypatch.setattr(Averaging, "merge", interrupted)


def test_ctrl_c_keeps_the_best_so_far(files, out, monkeypatch):
    interrupting(monkeypatch, 5)
    result = run("fit", *files, *RANKS, "--out", out, "--solver", "averaging")
    assert result.exit_code == 130
    assert "Stopped by Ctrl-C: the best fit so far is kept." in result.stderr
    assert load(out).n_rounds_ == 5


def test_ctrl_c_before_the_first_round_keeps_nothing(files, out, monkeypatch):
    interrupting(monkeypatch, 0)
    result = run("fit", *files, *RANKS, "--out", out, "--solver", "averaging")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "Stopped by Ctrl-C: there is no fit yet to keep."
    assert not out.exists()


def test_show_prints_what_fit_found(files, out, tmp_path):
    printed = run("fit", *files, *RANKS, "--out", out).stdout
    picture = tmp_path / "picture.png"
    result = run("show", out, "--components", 2, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "2 sources sharing 6 features; 2 shared components, 1 unique." in result.stdout
    table = printed.split("\n\n")[0]
    assert table in result.stdout
    first = load(out).shared_components_[0]
    largest = int(np.abs(first).argmax())
    assert f"shared0  f{largest} {first[largest]:+.2f}, " in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def with_empty_cells(tmp_path: Path) -> tuple[list[Path], dict[str, pd.DataFrame]]:
    data = make_heterogeneous(
        3, n_samples=25, n_features=8, n_shared=1, n_unique=1, noise=0.1, random_state=0
    )
    rng, found, paths = np.random.default_rng(0), {}, []
    for name, table in data.sources.items():
        hole = rng.random(table.shape) < 0.2
        frame = pd.DataFrame(np.where(hole, np.nan, table)).add_prefix("f")
        frame.iloc[3, 3] = 30.0
        paths.append(tmp_path / f"{name}.csv")
        frame.to_csv(paths[-1])
        found[name] = frame
    return paths, found


def test_empty_cells_are_missing_and_counted(tmp_path, out):
    paths, found = with_empty_cells(tmp_path)
    options = ("--shared", 1, "--unique", 1, "--loss", "trimmed", "--ridge", "0.1,0.2")
    result = run("fit", *paths, *options, "--out", out, "--scores", tmp_path / "scores")
    assert result.exit_code == 0, result.output
    holes = sum(int(table.isna().sum().sum()) for table in found.values())
    assert f"{holes} of 600 entries ({holes / 6:.1f} %) are missing" in result.stdout
    assert "    shared    unique  outliers  residual" in result.stdout
    expected = HMF(1, 1, loss="trimmed", ridge=(0.1, 0.2), random_state=0).fit(found)
    model = load(out)
    assert model.get_params() == expected.get_params()
    assert_equal_fit(model, expected)
    written = pd.read_csv(tmp_path / "scores" / "source0.csv", index_col=0)
    assert written.notna().all(axis=None)
    shown = run("show", out).stdout
    outliers = sum(part.nnz for part in expected.outliers_.values())
    threshold = f"{expected.loss_.threshold:.3g}"
    assert f"Trimmed loss with a threshold of {threshold}, ridge 0.1 and 0.2" in shown
    assert f"; {outliers} entries beyond it." in shown


def test_complete_tables_are_said_nothing_of_and_the_loss_is_shown(files, out):
    assert "missing" not in run("fit", *files, *RANKS, "--out", out).stdout
    assert "Squared loss.\n" in run("show", out).stdout


def test_a_source_of_which_hardly_anything_is_there_is_warned_of(tmp_path, out):
    paths, found = with_empty_cells(tmp_path)
    table = found["source1"]
    table.iloc[:, 2] = np.nan
    table.to_csv(paths[1])
    options = ("--shared", 1, "--unique", 1, "--ridge", 0.1, "--tol", 1e-3)
    result = run("fit", *paths, *options, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Warning: No entry was observed of some features of source 'source1'" in result.stderr


@pytest.mark.parametrize("ridge", ["much", "1,2,3", ""])
def test_a_ridge_that_is_none_is_refused(files, out, ridge):
    result = run("fit", *files, *RANKS, "--out", out, "--ridge", ridge)
    assert_refused(result, f"--ridge is '{ridge}': expected a number, or two with a comma.")


def test_tables_that_a_loss_cannot_take_are_refused(files, out):
    result = run("fit", *files, *RANKS, "--out", out, "--loss", "logistic")
    assert_refused(result, "Source 'north' holds", "expected only 0 and 1")
    assert_refused(run("fit", *files, *RANKS, "--out", out, "--ridge", -1), "ridge is -1.0")


def test_show_refuses_what_is_no_model(tmp_path):
    assert_refused(run("show", tmp_path / "no"), "There is no file")
    assert_refused(run("show", write(tmp_path / "text", "text " * 9)), "not a model")


def test_show_refuses_an_unknown_kind_of_picture(files, out, tmp_path):
    run("fit", *files, *RANKS, "--out", out)
    assert_refused(run("show", out, "--plot", tmp_path / "picture.doc"), "doc")


def test_demo_says_what_the_groups_share(tmp_path):
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    model = load(tmp_path / "demo" / "mice.safetensors")
    mice = load_mice_protein().sources
    assert model.source_names_ == list(mice)
    for name, row in model.explained_variance_ratio_.iterrows():
        assert f"{100 * row['shared']:>10.1f}{100 * row['unique']:>10.1f}" in result.stdout
        assert f"  {name}  " in result.stdout
    first = pd.Series(model.shared_components_[0], model.feature_names_in_)
    assert f"shared0  {first.abs().idxmax()} {first[first.abs().idxmax()]:+.2f}" in result.stdout
    assert str(model.diagnostics_) in result.stdout
    assert (tmp_path / "demo" / "mice.png").read_bytes().startswith(b"\x89PNG")


def test_demo_counts_every_protein_the_same(tmp_path):
    run("demo", "--out", tmp_path / "demo", "--quiet")
    model = load(tmp_path / "demo" / "mice.safetensors")
    mice = load_mice_protein().sources
    within = pd.concat([table - table.mean() for table in mice.values()]).std()
    scaled = {name: table / within for name, table in mice.items()}
    assert_equal_fit(model, HMF(3, 3, random_state=0).fit(scaled))


def test_demo_goes_without_matplotlib(tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0
    assert 'pip install "heterofactor[plots]"' in result.stdout
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["mice.safetensors"]


def test_demo_refuses_a_file_as_folder(tmp_path):
    assert_refused(run("demo", "--out", write(tmp_path / "file", "")), "is a file")


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "heterofactor.cli", *map(str, arguments)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_version_is_printed_by_a_real_process(tmp_path):
    done = command("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[-1]) == (0, heterofactor.__version__)


def test_demo_runs_as_a_real_process(tmp_path):
    done = command("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert load(tmp_path / "heterofactor-demo" / "mice.safetensors").converged_


def test_an_error_of_a_real_process_is_one_line(tmp_path):
    done = command("fit", "no.csv", *RANKS, "--out", "model.safetensors", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: no.csv: there is no such file.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_ctrl_c_stops_a_real_process_and_keeps_the_best(tmp_path):
    """So slow a fit that it never ends by itself: the first restart is not reached in time."""
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(300, 200)))
    code = (
        "import os, signal, threading; from heterofactor.cli import main; "
        "threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start(); main()"
    )
    options = "--shared 5 --unique 5 --solver averaging --tol 1e-300 --max-rounds 1000000"
    line = [sys.executable, "-c", code, "fit", "a.npy", "b.npy", *options.split(), "--out", "m"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGINT
    assert "Stopped by Ctrl-C: the best fit so far is kept." in done.stderr
    assert "Traceback" not in done.stderr
    assert load(tmp_path / "m").n_rounds_ > 0
