"""The commands of a federation: here, all of it on one machine, each site in a process."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import click

from heterofactor.console import UserError, one_line_errors
from heterofactor.federation.quorum import Quorum, TooFewSites
from heterofactor.federation.server import fit, save_shared
from heterofactor.federation.site import Site
from heterofactor.federation.trial import InProcesses, serve
from heterofactor.hmf import HMF
from heterofactor.reading import read_sources

IS_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def federation() -> None:
    """Fit tables that may not leave their owners."""


@federation.command()
@click.argument("files", nargs=-1, required=True, type=IS_FILE)
@click.option("--shared", "n_shared", type=int, required=True, help="Shared components.")
@click.option("--unique", "n_unique", type=int, required=True, help="Unique components.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where the server and every site keep what is theirs.",
)
@click.option("--index-col", metavar="COLUMN", help="The column with the samples' names.")
@click.option("--need", type=int, help="Sites that every round needs. [default: all]")
@click.option(
    "--timeout", type=float, default=600.0, show_default=True, help="Seconds to wait for a site."
)
@click.option("--secure/--plain", default=True, help="Whether to mask messages. [default: secure]")
@click.option("--tol", type=float, default=1e-8, show_default=True, help="Relative gradient.")
@click.option("--seed", type=int, default=0, show_default=True, help="For everything random.")
@one_line_errors
def simulate(
    files: tuple[Path, ...], n_shared: int, n_unique: int, out: Path, index_col: str | None,
    need: int | None, timeout: float, secure: bool, tol: float, seed: int,
) -> None:  # fmt: skip
    """Try a federation on this machine: each of FILES is a site, in a process of its own.

    Sites are named after their files. The server keeps FOLDER/shared.safetensors, and each site
    its model, which `heterofactor show` prints, in a folder of its own.
    """
    names = [path.stem for path in files]
    if len(set(names)) < len(names):
        raise UserError("Two of the files have one name, and sites are named after them: rename.")
    read_sources(files, index_col=index_col)  # what cannot be read is better said here
    model = HMF(n_shared, n_unique, tol=tol, random_state=seed)
    program = [sys.executable, "-m", "heterofactor.cli", "federation", "answer"]
    commands = {}
    for name, path in zip(names, files, strict=True):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        named = [] if index_col is None else ["--index-col", index_col]
        commands[name] = [*program, name, str(path), str(folder), *named]
    with InProcesses(commands) as transport, warnings.catch_warnings():
        try:
            found = fit(model, transport, quorum=Quorum(need=need, timeout=timeout), secure=secure)
        except TooFewSites as error:
            raise UserError(str(error)) from error
    save_shared(found, out / "shared.safetensors")
    for what, site, reason in found.left_out:
        click.echo(f"Left out of {what}: {site}, {reason}", err=True)
    if not found.converged:
        click.echo(f"Warning: the fit has not converged: {found.stopped}.", err=True)
    click.echo(
        f"{len(found.sites)} sites, {found.n_rounds} rounds: {found.stopped}.\n"
        f"Server: {out / 'shared.safetensors'}, {n_shared} shared components"
    )
    for name in found.sites:
        click.echo(f"Site:   {out / name / f'{name}.safetensors'}")


@federation.command(hidden=True)
@click.argument("name")
@click.argument("path", type=IS_FILE)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--index-col")
def answer(name: str, path: Path, folder: str, index_col: str | None) -> None:
    """Answer as a site from standard input to standard output."""
    serve(Site(name, read_sources([path], index_col=index_col), folder))
