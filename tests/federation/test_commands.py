"""A federation on one machine, from the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from heterofactor import HMF
from heterofactor.cli import main
from heterofactor.datasets import make_heterogeneous
from heterofactor.files import load

pytest.importorskip("cryptography")


def files(folder: Path) -> dict[str, Path]:
    data = make_heterogeneous(3, 30, 20, 2, 1, noise=0.1, random_state=0)
    paths = {name: folder / f"{name}.csv" for name in data.sources}
    for name, X in data.sources.items():
        pd.DataFrame(X, columns=[f"f{k}" for k in range(20)]).to_csv(paths[name], index=False)
    return paths


def test_three_sites_are_federated_in_one_command(tmp_path: Path) -> None:
    paths = files(tmp_path)
    out = tmp_path / "out"
    chosen = ["--shared", "2", "--unique", "1", "--out", str(out)]
    result = CliRunner().invoke(
        main, ["federation", "simulate", *map(str, paths.values()), *chosen]
    )
    assert result.exit_code == 0, result.output
    assert "3 sites" in result.output
    shared = load_file(out / "shared.safetensors")["shared_components"]
    tables = {name: pd.read_csv(path) for name, path in paths.items()}
    expected = HMF(2, 1).fit(tables).shared_components_
    # sums of masked messages are rounded, and both have a relative gradient of 1e-8
    np.testing.assert_allclose(shared.T @ shared, expected.T @ expected, atol=1e-7)
    own = load(out / "source1" / "source1.safetensors")
    assert own.source_names_ == ["source1"]
    assert own.feature_names_in_.tolist() == [f"f{k}" for k in range(20)]


def test_a_wrong_command_ends_in_one_line(tmp_path: Path) -> None:
    paths = list(map(str, files(tmp_path).values()))
    chosen = ["--shared", "2", "--unique", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["federation", "simulate", paths[0], paths[0], *chosen])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "one name" in result.output


def test_names_of_samples_are_a_column_that_is_named(tmp_path: Path) -> None:
    paths = files(tmp_path)
    for path in paths.values():
        table = pd.read_csv(path)
        table.insert(0, "mouse", [*range(len(table) - 1), "7A"])  # found out by the first few only
        table.to_csv(path, index=False)
    chosen = ["--shared", "2", "--unique", "1", "--plain", "--out", str(tmp_path / "out")]
    command = ["federation", "simulate", *map(str, paths.values()), *chosen]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code and "--index-col" in refused.output
    result = CliRunner().invoke(main, [*command, "--index-col", "mouse"])
    assert result.exit_code == 0, result.output
