"""The command line: what an HMF finds in files, printed as tables and sentences.

What a user can do wrong ends in one line on stderr and exit code 2. A fit that has not converged
is still an answer: it is printed and saved, with a warning on stderr and exit code 0.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from heterofactor import HMF, __version__
from heterofactor.console import INTERRUPTED, UserError, one_line_errors
from heterofactor.datasets import load_mice_protein
from heterofactor.federation.commands import federation
from heterofactor.files import load, save
from heterofactor.linalg import to_numpy
from heterofactor.loadings import loadings
from heterofactor.losses import LOSSES, Robust
from heterofactor.plots import plot_variance
from heterofactor.reading import read_sources
from heterofactor.solvers import SOLVERS

# A table of more sources is summarised.
MOST_ROWS = 60


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="heterofactor", prog_name="heterofactor")
def main() -> None:
    """Find what many related tables share, and what is unique to each."""


main.add_command(federation)


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("heterofactor-demo"),
              show_default=True, help="Folder for the picture and the model.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print only where the results are.")
@one_line_errors
def demo(out: Path, quiet: bool) -> None:
    """Fit eight groups of mice, and say what their proteins share.

    The data travel with the library: 70 proteins, measured in mice by genotype, learning and
    treatment.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: choose another folder with --out.")
    _need_folder(out.parent, "--out")
    mice = load_mice_protein().sources
    within = pd.concat([table - table.mean() for table in mice.values()]).std()
    sources = {group: table / within for group, table in mice.items()}
    model = HMF(n_shared=3, n_unique=3, random_state=0)
    stopped = _fit(model, sources)
    out.mkdir(exist_ok=True)
    save(model, out / "mice.safetensors")
    if not quiet:
        rows = sum(len(table) for table in mice.values())
        click.echo(
            f"Eight groups of mice (c control or t trisomic, CS stimulated to learn or SC not,\n"
            f"m memantine or s saline): {rows} measurements of {mice['c-CS-m'].shape[1]} proteins "
            "in the cortex.\n"
            "Each group's mean is subtracted, and every protein is divided by its standard "
            "deviation\nwithin groups, so that no protein counts for more because its scale is "
            "larger.\n"
        )
        _print_variance(model, "group")
        click.echo("\nWhat the groups share: the proteins with the largest loadings")
        _print_components(loadings(model, [])["shared"], 6)
        click.echo("\nWhat is unique to each group: the proteins that vary most in its unique part")
        width = max(len(name) for name in sources)
        for name, proteins in _most_unique(model, 6).items():
            click.echo(f"  {name:<{width}}  {', '.join(proteins)}")
        click.echo(f"\n{model.diagnostics_}\n")
    picture = _picture(model, out / "mice.png")
    if picture:
        click.echo(f"Picture: {out / 'mice.png'}")
    else:
        click.echo('No picture: it needs matplotlib, pip install "heterofactor[plots]"')
    click.echo(f"Model:   {out / 'mice.safetensors'} (heterofactor show, heterofactor.files.load)")
    sys.exit(INTERRUPTED if stopped else 0)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--shared", "n_shared", type=int, required=True, help="Shared components.")
@click.option(
    "--unique",
    "n_unique",
    required=True,
    metavar="RANKS",
    help="Unique components: 3, or 3,2,4 in the order of the sources, or by name "
    "north=3,south=2; 2,north=3 is 2 for all but north.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to save the model (.safetensors).",
)
@click.option(
    "--scores",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the scores of every source there as csv.",
)
@click.option(
    "--source-column",
    metavar="NAME",
    help="For a single file: the column that names the source of each row.",
)
@click.option(
    "--index-col",
    metavar="COLUMN",
    help="Name or number (from 0) of the column with the samples' names; found out if left out.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first row names the features; found out if left out.",
)
@click.option(
    "--shared-axis",
    type=click.Choice(["features", "samples"]),
    default="features",
    show_default=True,
    help="What the sources have in common.",
)
@click.option(
    "--centre",
    type=click.Choice(["source", "global", "none"]),
    default="source",
    show_default=True,
    help="What to subtract from every feature: its mean.",
)
@click.option(
    "--scale",
    type=click.Choice(["source", "none"]),
    default="none",
    show_default=True,
    help="source: every source counts the same.",
)
@click.option(
    "--loss",
    type=click.Choice(list(LOSSES)),
    default="squared",
    show_default=True,
    help="huber, absolute or trimmed for outliers, logistic for answers of 0 and 1, poisson for "
    "counts.",
)
@click.option(
    "--ridge",
    metavar="NUMBERS",
    help="Penalty on the squares of bases and scores: 1, or 1,0.5 for shared and unique ones. "
    "Where entries are missing, large ranks need one. [default: 2 under logistic and poisson loss]",
)
@click.option("--solver", type=click.Choice(["auto", *SOLVERS]), default="auto", show_default=True)
@click.option(
    "--tol", type=float, default=1e-8, show_default=True, help="Relative gradient at which to stop."
)
@click.option("--max-rounds", type=int, default=500, show_default=True, help="When to give up.")
@click.option("--restarts", type=int, default=0, show_default=True, help="More, random starts.")
@click.option("--seed", type=int, default=0, show_default=True, help="For everything random.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@click.option("--quiet", is_flag=True, help="Print nothing but warnings.")
@one_line_errors
def fit(
    files: tuple[Path, ...], n_shared: int, n_unique: str, out: Path, scores: Path | None,
    source_column: str | None, index_col: str | None, header: bool | None, shared_axis: str,
    centre: str, scale: str, loss: str, ridge: str | None, solver: str, tol: float, max_rounds: int,
    restarts: int, seed: int, force: bool, quiet: bool,
) -> None:  # fmt: skip
    """Fit the tables in FILES, one source each, and save the model.

    Samples are in rows: .csv, .tsv, .parquet, .npy, or .npz (whose every array is a source).
    Sources are named after their files. Empty cells, and NaN, are entries that were not observed.
    """
    _need_folder(out.parent, "--out")
    if out.is_dir():
        raise UserError(f"{out} is a folder: --out names the file of the model.")
    if out.exists() and not force:
        raise UserError(
            f"{out} is there already: choose another --out, or replace it with --force."
        )
    if scores is not None:
        _need_folder(scores.parent, "--scores")
        if scores.exists() and (not scores.is_dir() or (any(scores.iterdir()) and not force)):
            raise UserError(f"{scores} is not an empty folder: choose another, or use --force.")
    sources = read_sources(
        files, header=header, index_col=index_col, source_column=source_column
    )  # fmt: skip
    model = HMF(
        n_shared,
        _ranks(n_unique, list(sources)),
        loss=loss,
        ridge=_penalties(ridge),
        solver=solver,
        shared_axis=shared_axis,  # type: ignore[arg-type]
        centre=None if centre == "none" else centre,  # type: ignore[arg-type]
        scale=None if scale == "none" else "source",
        tol=tol,
        max_rounds=max_rounds,
        n_restarts=restarts,
        random_state=seed,
        verbose=int(sys.stderr.isatty() and not quiet),
    )
    stopped = _fit(model, sources)
    model.set_params(verbose=0)
    save(model, out)
    if scores is not None:
        _write_scores(model, sources, scores)
    if not quiet:
        _print_missing(sources)
        _print_variance(model, "source")
        click.echo(f"\n{model.diagnostics_}\n\nModel:  {out}")
        if scores is not None:
            click.echo(f"Scores: {scores}")
    sys.exit(INTERRUPTED if stopped else 0)


@main.command()
@click.argument("model_file", metavar="MODEL", type=click.Path(path_type=Path))
@click.option(
    "--components",
    type=click.IntRange(min=1),
    metavar="N",
    help="List the N features with the largest loadings on every component.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the variance table (.png, .svg, .pdf).",
)
@one_line_errors
def show(model_file: Path, components: int | None, plot: Path | None) -> None:
    """Print what a saved MODEL found."""
    model = load(model_file)
    if plot is not None:
        _need_folder(plot.parent, "--plot")
    count = len(model.source_names_)
    length = model.shared_components_.shape[1]
    click.echo(
        f"{count} source{'s' * (count != 1)} sharing {length} {model.shared_axis}; "
        f"{model.n_shared} shared components, {_listed_ranks(model)} unique.\n"
        f"{_listed_loss(model)}\n"
    )
    _print_variance(model, "source")
    if components is not None:
        for title, table in loadings(model).items():
            if table.shape[1]:
                click.echo(f"\n{title}")
                _print_components(table, components)
    click.echo(f"\n{model.diagnostics_}")
    if plot is not None:
        if not _picture(model, plot):
            raise UserError('--plot needs matplotlib: pip install "heterofactor[plots]"')
        click.echo(f"\nPicture: {plot}")


def _fit(model: HMF, sources: dict[str, Any]) -> bool:
    """Fit, say what is to be warned of, and whether Ctrl-C cut it short."""
    with _warnings_on_stderr():
        model.fit(sources)
    if not model._found.interrupted:
        return False
    if model.n_rounds_ == 0:
        raise KeyboardInterrupt
    click.echo("Stopped by Ctrl-C: the best fit so far is kept.", err=True)
    return True


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # those of convergence among them
        yield
    for warning in caught:
        click.echo(f"Warning: {' '.join(str(warning.message).split())}", err=True)


def _need_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder} for {option}: make it first.")


def _ranks(text: str, names: Sequence[str]) -> int | list[int] | dict[Any, int]:
    """Read --unique: a number, a list, or names; a number before names is for all the others."""
    wanted = f"--unique is {text!r}: expected a number, numbers with commas, or name=number."
    bare: list[int] = []
    named: dict[Any, int] = {}
    for item in text.split(","):
        name, equals, number = item.rpartition("=")
        if not re.fullmatch(r"\s*\d+\s*", number):
            raise UserError(wanted)
        if equals:
            named[name.strip()] = int(number)
        else:
            bare.append(int(number))
    if not named:
        return bare[0] if len(bare) == 1 else bare
    if len(bare) > 1:
        raise UserError(wanted)
    return {name: bare[0] for name in names if bare} | named


def _penalties(text: str | None) -> float | tuple[float, float] | None:
    """Read --ridge: a number, or two, or what suits the loss."""
    if text is None:
        return None
    try:
        numbers = [float(item) for item in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise UserError(f"--ridge is {text!r}: expected a number, or two with a comma.")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def _listed_loss(model: HMF) -> str:
    """Say what a deviation cost in the fit."""
    kind = next((k for k, known in LOSSES.items() if isinstance(model.loss_, known)), "own")
    text = f"{kind.capitalize()} loss"
    if isinstance(model.loss_, Robust):
        text += f" with a threshold of {model.loss_.threshold:.3g}"
    shared, unique = model._ridge()
    if shared or unique:
        text += f", ridge {shared:g}" + (f" and {unique:g}" if shared != unique else "")
    if hasattr(model, "outliers_"):
        count = sum(part.nnz for part in model.outliers_.values())
        text += f"; {count} entries beyond it"
    return f"{text}."


def _print_missing(sources: dict[str, Any]) -> None:
    """Say how many entries were not observed, if any were not."""
    holes = sum(int(np.sum(np.asarray(pd.isna(table)))) for table in sources.values())
    entries = sum(int(np.prod(table.shape)) for table in sources.values())
    if holes:
        click.echo(
            f"{holes} of {entries} entries ({100 * holes / entries:.1f} %) are missing; the others "
            "are what was fitted.\n"
        )


def _listed_ranks(model: HMF) -> str:
    ranks = [basis.shape[1] for basis in model.factors_.unique_bases.values()]
    return str(ranks[0]) if len(set(ranks)) == 1 else f"{min(ranks)} to {max(ranks)}"


def _print_variance(model: HMF, what: str) -> None:
    """Print the shares of each source, or their distribution where there are very many."""
    shares = 100 * model.explained_variance_ratio_.clip(lower=0)
    if len(shares) > MOST_ROWS:
        rows = {"smallest": shares.min(), "median": shares.median(), "largest": shares.max()}
        what, shares = f"{len(shares)} sources", pd.DataFrame(rows).T
    width = max(len(what), *(len(str(name)) for name in shares.index))
    heads = "".join(f"{part:>10}" for part in shares.columns)
    click.echo(f"{what:<{width}}{heads}   (% of its variance)")
    for name, row in zip(shares.index, shares.to_numpy(), strict=True):
        click.echo(f"{name!s:<{width}}" + "".join(f"{share:>10.1f}" for share in row))


def _print_components(table: pd.DataFrame, top: int) -> None:
    width = max(len(name) for name in table.columns)
    for name, column in table.items():
        largest = column.iloc[np.argsort(-column.abs().to_numpy(), kind="stable")[:top]]
        parts = [f"{feature} {value:+.2f}" for feature, value in largest.items()]
        click.echo(f"  {name!s:<{width}}  {', '.join(parts)}")


def _most_unique(model: HMF, top: int) -> dict[str, list[str]]:
    """Return the features with the largest variance in the unique part of each source."""
    found = {}
    for name, scores in model.factors_.unique_scores.items():
        table = loadings(model, [name])[f"unique to {name}"]
        variance = table.to_numpy() ** 2 @ (to_numpy(scores) ** 2).sum(axis=0)
        order = np.argsort(-variance, kind="stable")[:top]
        found[str(name)] = [str(feature) for feature in table.index[order]]
    return found


def _picture(model: HMF, path: Path) -> bool:
    """Draw the variance table into a file, where matplotlib is there to do it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    # a figure of its own: no window system is asked for, none is needed
    count = len(model.source_names_)
    figure = Figure(figsize=(7, 3.2 if count > 40 else 1.3 + 0.3 * count), layout="constrained")
    plot_variance(model, figure.subplots())
    figure.savefig(path, dpi=150)
    return True


def _write_scores(model: HMF, sources: dict[str, Any], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    labels = model.get_feature_names_out()
    found = model.transform(sources)
    if model.shared_axis == "samples":
        found, sources = {"scores": found}, {"scores": next(iter(sources.values()))}
    written: set[str] = set()
    for name, scores in found.items():
        stem = re.sub(r"[^\w.+-]", "_", name) or "_"
        while stem.lower() in written:
            stem += "_"
        written.add(stem.lower())
        index = getattr(sources[name], "index", None)
        table = pd.DataFrame(to_numpy(scores), index, labels[: scores.shape[1]])
        table.to_csv(folder / f"{stem}.csv")


if __name__ == "__main__":
    main()
