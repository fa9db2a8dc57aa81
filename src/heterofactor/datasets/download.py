"""Fetch a published archive: said first, checked against its checksum, kept only when whole."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

# Seconds without an answer after which a server counts as gone.
PATIENCE = 60


def download(url: str, sha256: str, members: Sequence[str], folder: Path, terms: str) -> None:
    """Download a zip archive and put some of its files into a folder.

    Parameters
    ----------
    url : str
        Of the archive.
    sha256 : str
        What its SHA-256 has to be, in hexadecimal digits.
    members : sequence of str
        The files that are wanted, as the archive names them; they are stored without their path.
    folder : Path
        Made if it is not there. It stays as it is unless all files are there and right.
    terms : str
        Said before the download begins, on the standard error stream.

    Examples
    --------
    An archive on this machine stands for one on the web:

    >>> import hashlib, tempfile, zipfile
    >>> from pathlib import Path
    >>> from heterofactor.datasets.download import download
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     archive = Path(folder, "set.zip")
    ...     with zipfile.ZipFile(archive, "w") as file:
    ...         file.writestr("set/data.txt", "1 2 3")
    ...     checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    ...     download(archive.as_uri(), checksum, ["set/data.txt"], Path(folder), "No terms.")
    ...     Path(folder, "data.txt").read_text()
    '1 2 3'
    """
    print(f"Downloading {url} to {folder}. {terms}", file=sys.stderr, flush=True)
    try:
        with urlopen(url, timeout=PATIENCE) as answer:
            content = answer.read()
    except OSError as error:  # what urllib raises for servers, names and files alike
        raise OSError(
            f"{url} could not be downloaded ({error}): download it another way, unpack it, and "
            "give the folder."
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise OSError(
            f"{url} has the SHA-256 {found}, and {sha256} was expected: the download was cut off "
            "or the archive has changed. Nothing was kept. Try again, or give a folder with the "
            "files."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(BytesIO(content)) as archive,
        tempfile.TemporaryDirectory(dir=folder) as unfinished,
    ):
        written = [Path(unfinished, Path(member).name) for member in members]
        for path, member in zip(written, members, strict=True):
            path.write_bytes(archive.read(member))
        for path in written:
            path.replace(folder / path.name)
