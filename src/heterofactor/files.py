"""Fitted models in files: arrays as safetensors, all else as JSON in the header, never a pickle.

Every attribute of a model is written as JSON in which arrays and labels are references to tensors,
and what is no plain value says its kind: ``{"tuple": [...]}``, ``{"array": "3"}``. Reading makes
values and objects of a short list of known classes; a file cannot make it run anything else.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Hashable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from array_api_compat import is_torch_array
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from sklearn.utils.validation import check_is_fitted

import heterofactor
from heterofactor.engines import DaskEngine, Serial, Threads
from heterofactor.factors import Factors
from heterofactor.labels import (
    PLAIN,
    index_from_json,
    index_to_json,
    label_from_json,
    label_to_json,
)
from heterofactor.linalg import to_numpy
from heterofactor.losses import LOSSES
from heterofactor.ratings.drift import Drift
from heterofactor.ratings.features import Encoding
from heterofactor.ratings.inner import Inner
from heterofactor.ratings.reading import Ratings
from heterofactor.ratings.tastes import Tastes
from heterofactor.ratings.told import Told
from heterofactor.rounds import Result
from heterofactor.search import Found
from heterofactor.solvers import SOLVERS
from heterofactor.start import Start
from heterofactor.tables import Tables

# Raised whenever an older version of the library could not read, or would misread, a new file.
FORMAT = 1
KEY = "heterofactor"
# What a file may hold, and where it is; only what is used is imported, for some need torch.
MODELS = {
    "HMF": "heterofactor.hmf",
    "HAE": "heterofactor.hae",
    "RatingModel": "heterofactor.ratings.model",
    "SparseFC": "heterofactor.ratings.sparsefc",
    "RatingHAE": "heterofactor.ratings.hae_ratings",
    "AutoSVD": "heterofactor.ratings.autosvd",
    "GHRS": "heterofactor.ratings.ghrs",
    "GraphRec": "heterofactor.ratings.graphrec",
    "MatrixCompletion": "heterofactor.ratings.completion",
    "Blend": "heterofactor.ratings.blend",
    "TimeDrift": "heterofactor.ratings.drift",
}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file; `load` brings it back.

    A file that is there already is replaced, and only once the new one is complete.

    Parameters
    ----------
    model : HMF, HAE, RatingModel, or another model of ratings
        A fitted model. What its parameters hold must be plain values, or a solver, loss or engine
        of this library.
    path : str or path
        Of the file, by custom ending in ``.safetensors``.

    Notes
    -----
    Nothing is rounded. A RatingModel with ``solver="gibbs"`` keeps a hundred draws, in double
    precision: 48 MB for MovieLens 100K, where the sixteen fits of ``"als"`` take 10 MB.

    Examples
    --------
    >>> import tempfile
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import load_mice_protein
    >>> from heterofactor.files import load, save
    >>> mice = load_mice_protein().sources
    >>> model = HMF(n_shared=3, n_unique=2, random_state=0).fit(mice)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/mice.safetensors")
    ...     again = load(f"{folder}/mice.safetensors")
    >>> bool((again.transform(mice)["t-CS-m"] == model.transform(mice)["t-CS-m"]).all())
    True
    """
    if not _is_model(model):
        raise TypeError(
            f"Only models of this library can be saved ({', '.join(MODELS)}), but this is "
            f"{type(model).__name__}: save its parts yourself, or the model that it holds."
        )
    check_is_fitted(model)
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(path.parent)!r}: make it first.")
    writer = _Writer()
    header = {"format": FORMAT, "version": heterofactor.__version__} | writer.describe(model)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        save_file(writer.tensors, part, {KEY: json.dumps(header)})
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted model from a file that `save` wrote.

    Parameters
    ----------
    path : str or path
        Of the file.

    Returns
    -------
    HMF, HAE, RatingModel, or another model of ratings
        As it was saved: it gives the same numbers, to the last bit.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from heterofactor import HMF
    >>> from heterofactor.files import load, save
    >>> rng = np.random.default_rng(0)
    >>> model = HMF(2, 1).fit({"north": rng.normal(size=(9, 5)), "south": rng.normal(size=(8, 5))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     print(load(f"{folder}/model.safetensors").source_names_)
    ['north', 'south']
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    ours = "a model that heterofactor.files.save wrote"
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY)
            header = json.loads(text) if text else {}
            if not header:
                raise ValueError(f"{str(path)!r} is a safetensors file, but not {ours}.")
            if header["format"] > FORMAT:
                raise ValueError(
                    f"{str(path)!r} was written by heterofactor {header['version']} in format "
                    f"{header['format']}, and this is {heterofactor.__version__}, which reads up "
                    f"to format {FORMAT}: install a newer heterofactor."
                )
            reader = _Reader({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged, or not {ours}: {error}.") from error
    try:
        return reader.restore(header)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r}, written by heterofactor {header.get('version')}, holds what "
            f"{heterofactor.__version__} does not know: {error}."
        ) from error


def _is_model(value: Any) -> bool:
    return MODELS.get(type(value).__name__) == type(value).__module__


def _model_class(name: str) -> type[Any]:
    """Return the class of a model that a file may name."""
    try:
        room = importlib.import_module(MODELS[name])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{name} needs torch: pip install 'heterofactor[hae]'.") from error
    found: type[Any] = getattr(room, name)
    return found


def _lean(found: Found) -> Found:
    """Leave out the memory of the solver, which no question about a fit needs; history_ stays."""
    scalars = {k: v for k, v in found.result.shared.items() if not np.ndim(v)}
    return replace(
        found,
        result=replace(found.result, shared=scalars, history=[]),
        start=replace(found.start, basis=found.start.basis[:, :0]),
        shared={},
        locals=[],
        history=[],
    )


def _known_classes() -> dict[str, type]:
    """Return the classes that a file may name."""
    fits = (Factors, Tables, Found, Result, Start)
    ratings = (Ratings, Tastes, Told, Encoding, Inner, Drift)
    rooms = (*LOSSES.values(), *SOLVERS.values(), DaskEngine, Serial, Threads)
    return {known.__name__: known for known in (*fits, *ratings, *rooms)}


class _Writer:
    """Turns values into JSON, and collects the tensors that it refers to."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray[Any, Any]] = {}
        self.seen: dict[Hashable, str] = {}
        self.kept: list[Any] = []  # so that the ids in `seen` stay taken
        self.models: list[Any] = []  # inside of others

    def describe(self, model: Any) -> dict[str, Any]:
        """Return what a model is made of."""
        parameters = model.get_params(deep=False)
        found = {name: value for name, value in vars(model).items() if name not in parameters}
        if "_found" in found:
            found["_found"] = _lean(found["_found"])
        return {
            "class": type(model).__name__,
            "parameters": {k: self.encode(v, f"parameter {k!r}") for k, v in parameters.items()},
            "attributes": {k: self.encode(v, f"attribute {k!r}") for k, v in found.items()},
        }

    def encode(self, value: Any, where: str) -> Any:
        if value is None or type(value) in PLAIN:
            return value
        if isinstance(value, list):
            return [self.encode(item, where) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [self.encode(item, where) for item in value]}
        if isinstance(value, dict):
            pairs = value.items()
            return {"dict": [[self.encode(k, where), self.encode(v, where)] for k, v in pairs]}
        if isinstance(value, pd.Index):
            return {"index": self._index(value, where)}
        if isinstance(value, pd.DataFrame):
            columns = [self.encode(pd.Index(value[name]), where) for name in value.columns]
            return {"frame": [self.encode(value.index, where), list(value.columns), columns]}
        if isinstance(value, pd.Series):
            parts = [self.encode(part, where) for part in (value.index, pd.Index(value))]
            return {"series": [*parts, self.encode(value.name, where)]}
        if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
            return {"objects": self._index(pd.Index(value.reshape(-1), dtype=object), where)}
        if isinstance(value, np.ndarray) or is_torch_array(value):
            return self._array(value)
        if isinstance(value, scipy.sparse.csr_array):
            parts = [self._array(part) for part in (value.data, value.indices, value.indptr)]
            return {"sparse": [list(value.shape), parts]}
        if isinstance(value, np.random.RandomState):
            return {"random": self.encode(value.get_state(legacy=False), where)}
        if _is_model(value):
            for place, model in enumerate(self.models):
                if model is value:
                    return {"again": place}
            self.models.append(value)
            return {"model": self.describe(value)}
        known = _known_classes()
        if isinstance(value, type) and value in known.values():
            return {"class": value.__name__}
        if is_dataclass(value) and type(value) in known.values():
            members = {
                f.name: self.encode(getattr(value, f.name), where) for f in fields(value) if f.init
            }
            return {"object": [type(value).__name__, members]}
        try:
            return {"label": label_to_json(value)}
        except TypeError as error:
            raise _refusal(str(error), where) from None

    def _array(self, value: Any) -> dict[str, Any]:
        """Refer to a tensor; the memory layout is kept, since products can depend on it."""
        array = to_numpy(value)
        turned = array.ndim == 2 and array.strides[0] == array.itemsize != array.strides[1]
        if id(value) not in self.seen:
            self.kept.append(value)
            self.seen[id(value)] = self._tensor(array.T if turned else array)
        library = {} if isinstance(value, np.ndarray) else {"library": "torch"}
        return {"array": self.seen[id(value)], **({"turned": True} if turned else {}), **library}

    def _tensor(self, array: np.ndarray[Any, Any]) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name

    def _index(self, index: pd.Index, where: str) -> str:
        """Refer to a tensor that holds labels as text; equal labels are written once."""
        try:
            text = json.dumps(index_to_json(index))
        except TypeError as error:
            raise _refusal(str(error), where) from None
        if text not in self.seen:
            self.seen[text] = self._tensor(np.frombuffer(text.encode(), dtype=np.uint8))
        return self.seen[text]


def _refusal(what: str, where: str) -> TypeError:
    return TypeError(
        f"A file cannot hold {what} of {where}: only plain values, labels of text, numbers and "
        "times, arrays of NumPy or torch, and solvers, losses and engines of heterofactor. "
        "Replace it with set_params, or fit with other labels, and save again."
    )


class _Reader:
    """Turns the JSON of `_Writer` back into values."""

    def __init__(self, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        self.tensors = tensors
        self.indexes: dict[str, pd.Index] = {}
        self.models: list[Any] = []

    def restore(self, described: dict[str, Any]) -> Any:
        """Make the model that was described."""
        kind = _model_class(described["class"])
        model = kind(**{k: self.decode(v) for k, v in described["parameters"].items()})
        for name, value in described["attributes"].items():
            setattr(model, name, self.decode(value))
        return model

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind, content = next(iter(value.items()))
        match kind:
            case "tuple":
                return tuple(self.decode(content))
            case "dict":
                return {self.decode(k): self.decode(v) for k, v in content}
            case "index":
                return self._index(content)
            case "frame":
                index, names, columns = content
                series = zip(names, self.decode(columns), strict=True)
                index = self.decode(index)
                return pd.DataFrame({k: pd.Series(v, index=index) for k, v in series}, index)
            case "series":
                index, values, name = (self.decode(part) for part in content)
                return pd.Series(values, index=index, name=name)
            case "label":
                return label_from_json(content)
            case "objects":
                return self._index(content).to_numpy(dtype=object)
            case "array":
                array = self.tensors[content]
                array = array.T if value.get("turned") else array
                return _as_torch(array) if value.get("library") == "torch" else array
            case "sparse":
                shape, parts = content
                return scipy.sparse.csr_array(tuple(self.decode(parts)), shape=tuple(shape))
            case "random":
                state = np.random.RandomState()
                state.set_state(self.decode(content))
                return state
            case "model":
                place = len(self.models)
                self.models.append(None)  # those inside of it come later
                self.models[place] = self.restore(content)
                return self.models[place]
            case "again":
                return self.models[content]
            case "class":
                return _known_classes()[content]
            case "object":
                members = {name: self.decode(member) for name, member in content[1].items()}
                return _known_classes()[content[0]](**members)
        raise KeyError(kind)

    def _index(self, name: str) -> pd.Index:
        if name not in self.indexes:
            self.indexes[name] = index_from_json(json.loads(self.tensors[name].tobytes()))
        return self.indexes[name]


def _as_torch(array: np.ndarray[Any, Any]) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "This model was fitted on torch tensors, and torch is missing: install torch."
        ) from error
    return torch.from_numpy(array)
