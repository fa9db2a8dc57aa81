"""MovieLens is read as published, downloaded only when whole, and refused with advice."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from heterofactor.datasets import load_movielens_100k
from heterofactor.datasets.download import download

FILES = {
    "u.data": "2\t1\t4\t900\n1\t2\t1\t800\n",
    "u.item": "".join(
        f"{item}|{title}||http://imdb.com|{flags}\n"
        for item, title, flags in [
            (1, 'Caf\xe9 "Noir" (1995)|01-Jan-1995', "|".join("0100000000000000001")),
            (2, "unknown|", "|".join("1000000000000000000")),
        ]
    ),
    "u.user": "1|24|M|writer|01002\n2|53|F|other|T8H1N\n",
    "README": "SUMMARY & USAGE LICENSE",
}


@pytest.fixture
def archive(tmp_path: Path) -> tuple[str, str]:
    """Make an archive in the published form, of our own; return its address and checksum."""
    path = tmp_path / "ml.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in FILES.items():
            file.writestr(f"ml-100k/{name}", text.encode("latin-1"))
    return path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest()


def members() -> list[str]:
    return [f"ml-100k/{name}" for name in FILES]


def test_what_is_downloaded_can_be_loaded(archive: tuple[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "ml-100k"
    download(*archive, members(), folder, "Terms.")
    movies = load_movielens_100k(folder)
    assert movies.ratings.to_numpy().tolist() == [[2, 1, 4, 900], [1, 2, 1, 800]]
    assert movies.items.loc[1].tolist() == ['Caf\xe9 "Noir" (1995)', 1995]
    assert movies.items["year"].isna().tolist() == [False, True]
    flags = movies.item_flags
    assert {item: list(flags.columns[flags.loc[item]]) for item in flags.index} == {
        1: ["Action", "Western"],
        2: ["unknown"],
    }
    assert movies.users["zip"].tolist() == ["01002", "T8H1N"]


def test_a_download_is_announced_with_its_terms(
    archive: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download(*archive, members(), tmp_path / "new", "Not to be given away.")
    said = capsys.readouterr().err
    assert archive[0] in said
    assert "Not to be given away." in said


def test_nothing_is_kept_of_an_archive_that_has_changed(
    archive: tuple[str, str], tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=r"SHA-256 .* was expected.*Nothing was kept"):
        download(archive[0], "0" * 64, members(), tmp_path / "new", "Terms.")
    assert not (tmp_path / "new").exists()


def test_nothing_is_kept_of_an_archive_without_one_of_the_files(
    archive: tuple[str, str], tmp_path: Path
) -> None:
    with pytest.raises(KeyError):
        download(*archive, [*members(), "ml-100k/u.more"], tmp_path / "new", "Terms.")
    assert list((tmp_path / "new").iterdir()) == []


def test_an_address_without_an_answer_says_what_else_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"could not be downloaded.*give the folder"):
        download((tmp_path / "none.zip").as_uri(), "", [], tmp_path, "Terms.")


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text(FILES["u.data"])
    with pytest.raises(FileNotFoundError, match=r"has no u\.item, u\.user: give the folder"):
        load_movielens_100k(tmp_path)


def test_the_folder_of_data_is_looked_into_first(
    archive: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(*archive, members(), tmp_path / "ml-100k", "Terms.")
    monkeypatch.setenv("HETEROFACTOR_DATA", str(tmp_path))
    assert len(load_movielens_100k().ratings) == 2


def test_the_published_data_are_whole(shared_data: Path) -> None:
    movies = load_movielens_100k(shared_data / "ml-100k")
    ratings = movies.ratings
    assert ratings.shape == (100_000, 4)
    assert not ratings.duplicated(["user", "item"]).any()
    assert ratings["rating"].value_counts().sort_index().tolist() == [
        6_110,
        11_370,
        27_145,
        34_174,
        21_201,
    ]
    assert set(ratings["user"]) == set(movies.users.index)
    assert set(ratings["item"]) == set(movies.items.index)
    assert movies.item_flags.shape == (1_682, 19)
    assert round(movies.item_flags.sum(axis=1).mean(), 2) == 1.72
    assert movies.items.loc[1, "title"] == "Toy Story (1995)"
    assert int(movies.items["year"].isna().sum()) == 1
