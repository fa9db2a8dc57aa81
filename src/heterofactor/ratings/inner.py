"""Models of ratings inside of others: told what columns are called, and asked by others' places.

An inner model may know more than has been rated, such as items of which only features are known,
and what it knows may be in another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.reading import Array, Codes, Ratings

COLUMNS = ("user", "item", "rating", "weight", "time")


def told(model: Any, outer: RatingFace) -> Any:
    """Return a copy of a model that calls columns as the outer one does.

    Examples
    --------
    >>> from heterofactor import RatingModel
    >>> from heterofactor.ratings.inner import told
    >>> told(RatingModel(), RatingModel(user="reader")).user
    'reader'
    """
    takes = model.get_params()
    names = {name: getattr(outer, name) for name in COLUMNS if hasattr(outer, name)}
    return clone(model).set_params(**{name: names[name] for name in names if name in takes})


def with_ids_of(known: Ratings, models: Iterable[RatingFace]) -> Ratings:
    """Return the same ratings, with users and items that models know beside those who rated.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor import RatingModel
    >>> from heterofactor.ratings.inner import with_ids_of
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> some, all_ = (
    ...     pd.DataFrame({"user": list(users), "item": 1, "rating": 2.0}) for users in ("b", "abc")
    ... )
    >>> model = RatingModel(0, 0, n_fits=1).fit(all_)
    >>> with_ids_of(read_ratings(some, Columns()), [model]).users.tolist()
    ['b', 'a', 'c']
    """
    for model in models:
        users = known.users.append(model.users_.difference(known.users))
        items = known.items.append(model.items_.difference(known.items))
        known = replace(known, users=users, items=items)
    return known


@dataclass(frozen=True, eq=False)
class Inner:
    """A fitted model, and where it has what the outer model knows.

    Attributes
    ----------
    model : RatingFace
        The inner model.
    user, item : array of int
        The places in it of the outer model's users and items; -1, also in the last place, is what
        it does not know.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor import RatingModel
    >>> from heterofactor.ratings.inner import Inner
    >>> table = pd.DataFrame({"user": ["b", "a"], "item": [7, 8], "rating": [1.0, 2.0]})
    >>> model = RatingModel(0, 0, n_fits=1).fit(table)
    >>> Inner.of(model, model).user.tolist()
    [0, 1, -1]
    """

    model: RatingFace
    user: Codes
    item: Codes

    @classmethod
    def of(cls, model: RatingFace, outer: RatingFace) -> Self:
        """Find the outer model's users and items in a model."""
        return cls(
            model,
            np.append(model.users_.get_indexer(outer.users_), -1),
            np.append(model.items_.get_indexer(outer.items_), -1),
        )

    def at(self, user: Codes, item: Codes) -> Array:
        """Return what the model expects of pairs of the outer model's places."""
        return self.model._expected(self.user[user], self.item[item])

    def table(self, user: Codes) -> Array:
        """Return what the model expects of some users and all items of the outer model."""
        user, item = self.user[user], self.item[:-1]
        found = self.model._expected_table(user)[:, item]
        nothing = self.model._expected(user, np.full(len(user), -1))
        return np.where(item >= 0, found, nothing[:, None])
