r"""The networks of the heterogeneous auto-encoder, and the projection between their scores.

A layer is :math:`x \mapsto a(x W + b)`; a sparse kernel layer has :math:`W_{ij} K(u_i, v_j)` for W,
with a learned vector of each unit. Layers of the unique encoders are stacks, one matrix for each
source, so that all of them are one product.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from heterofactor.batches import Batch, Tensor, grouped

# What makes a network of the user's own, given how many numbers go in and come out.
MakeNetwork = Callable[[int, int], Any]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "linear": lambda x: x,
}
# Of squared distances.
KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "compact": lambda squares: (1 - squares).clamp(min=0),
    "gaussian": lambda squares: torch.exp(-squares),
}
# The learned vectors of kernels start close together, where every kernel is nearly one.
SPREAD = 1e-3
# Frames whose products are farther from the identity, in machine epsilons, are made anew.
STRAIGHT = 50.0


class Layer(nn.Module):
    """One layer, or a stack of one for each source.

    Parameters
    ----------
    n_in, n_out : int
        How many numbers go in and come out.
    generator : torch.Generator
        For the random start.
    activation : str
        One of `ACTIVATIONS`.
    kernel : {"compact", "gaussian"}, optional
        Makes it a sparse kernel layer.
    n_kernel : int
        Length of the kernel's vectors.
    n_sources : int, optional
        Makes it a stack.
    half : bool
        Multiply dense matrices in bfloat16: three digits, but faster where processors have it.
    dropout : float
        Share of what goes in that is left out at random, in training.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import Layer
    >>> layer = Layer(4, 2, torch.Generator(), kernel="compact", n_sources=3)
    >>> layer.weights().shape, layer(torch.ones(6, 4), [1, 2, 3]).shape
    (torch.Size([3, 4, 2]), torch.Size([6, 2]))
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        generator: Any,
        *,
        activation: str = "linear",
        kernel: str | None = None,
        n_kernel: int = 5,
        n_sources: int | None = None,
        half: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        stack = () if n_sources is None else (n_sources,)
        self.activation, self.kernel, self.half = activation, kernel, half
        self.dropout = dropout
        bound = (6 / (n_in + n_out)) ** 0.5
        uniform = torch.rand(*stack, n_in, n_out, generator=generator)
        self.weight = nn.Parameter(bound * (2 * uniform - 1))
        self.bias = nn.Parameter(torch.zeros(*stack, n_out))
        if kernel is not None:
            for name, length in (("sending", n_in), ("receiving", n_out)):
                vectors = SPREAD * torch.randn(*stack, length, n_kernel, generator=generator)
                self.register_parameter(name, nn.Parameter(vectors))

    def mask(self) -> Tensor:
        """Return what the kernel multiplies the weights by."""
        one, other = self.sending, self.receiving
        squares = (one**2).sum(-1)[..., :, None] + (other**2).sum(-1)[..., None, :]
        return KERNELS[self.kernel or ""](squares - 2 * one @ other.mT)

    def weights(self) -> Tensor:
        """Return the matrix, or stack of matrices, that rows are multiplied by."""
        return self.weight if self.kernel is None else self.weight * self.mask()

    def thinned(self, x: Tensor) -> Tensor:
        """Return what goes in, some of it left out in training."""
        return nn.functional.dropout(x, self.dropout, self.training and self.dropout > 0)

    def forward(self, x: Tensor | Batch, counts: Sequence[int]) -> Tensor:
        """Return the layer's output for rows sorted by source, or for a whole batch."""
        weight = self.weights()
        if not isinstance(x, torch.Tensor):
            return self._activated(x.product(weight), counts)
        x = self.thinned(x)
        if self.half:
            found = grouped(x.bfloat16(), weight.bfloat16(), counts).float()
        else:
            found = grouped(x, weight, counts)
        return self._activated(found, counts)

    def _activated(self, found: Tensor, counts: Sequence[int]) -> Tensor:
        bias = self.bias if self.bias.ndim == 1 else _repeated(self.bias, counts)
        return ACTIVATIONS[self.activation](found + bias)


class Layers(nn.Module):
    """Layers, one after the other.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import Layer, Layers
    >>> chance = torch.Generator()
    >>> Layers([Layer(4, 3, chance), Layer(3, 2, chance)])(torch.ones(5, 4), [5]).shape
    torch.Size([5, 2])
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor | Batch, counts: Sequence[int]) -> Tensor:
        """Return the output of the last layer."""
        for layer in self.layers:
            x = layer(x, counts)
        return x

    def entries(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return what is decoded at the entries to be predicted; the last layer is linear."""
        *before, last = self.layers
        for layer in before:
            scores = layer(scores, batch.counts)
        return batch.predicted(last.thinned(scores), last.weights(), last.bias)


class Given(nn.Module):
    """Networks of the user's own: one, or one for each source.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import Given
    >>> Given([torch.nn.Linear(4, 2)])(torch.ones(3, 4), [1, 2]).shape
    torch.Size([3, 2])
    """

    def __init__(self, networks: Sequence[Any]) -> None:
        super().__init__()
        for one in networks:
            if not isinstance(one, nn.Module):
                raise TypeError(
                    f"encoder or decoder returned {type(one).__name__}: expected functions of how "
                    "many numbers go in and come out that return a torch.nn.Module."
                )
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor | Batch, counts: Sequence[int]) -> Tensor:
        """Return the networks' output for rows sorted by source, or for a whole batch."""
        rows = x if isinstance(x, torch.Tensor) else x.dense()
        if len(self.networks) == 1:
            return self.networks[0](rows)
        parts = zip(rows.split(list(counts)), self.networks, strict=True)
        return torch.cat([network(part) for part, network in parts])

    def entries(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return what is decoded at the entries to be predicted."""
        return batch.pick(self(scores, batch.counts))


class AutoEncoder(nn.Module):
    """A shared encoder, a unique one for each source, and one decoder.

    Parameters
    ----------
    shared, unique, decoder : Layers or Given
        Without a unique encoder, it is a plain auto-encoder.
    n_folds : int
        Into how many vectors scores are folded, for the projection.
    dropout : float
        Share of the inputs of a batch that is left out at random, in training.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import AutoEncoder, Layer, Layers
    >>> chance = torch.Generator().manual_seed(0)
    >>> shared, decoder = Layers([Layer(9, 6, chance)]), Layers([Layer(6, 9, chance)])
    >>> unique = Layers([Layer(9, 6, chance, n_sources=2)])
    >>> network = AutoEncoder(shared, unique, decoder, n_folds=2)
    >>> one, other = network.scores(torch.ones(4, 9), [3, 1])
    >>> inner = one.reshape(4, 2, 3) @ other.reshape(4, 2, 3).mT
    >>> bool(inner.abs().max() < 1e-6)
    True
    """

    def __init__(
        self, shared: Any, unique: Any, decoder: Any, n_folds: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.shared, self.unique, self.decoder = shared, unique, decoder
        self.n_folds, self.dropout = n_folds, dropout

    def scores(self, x: Tensor | Batch, counts: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Return the shared scores, and the unique ones without what lies in their span."""
        shared = self.shared(x, counts)
        if self.unique is None:
            return shared, None
        return shared, deflated(shared, self.unique(x, counts), self.n_folds)

    def forward(self, batch: Batch) -> Tensor:
        """Return what is predicted at the entries asked for."""
        thin = self.training and self.dropout > 0
        inputs = batch.thinned(self.dropout) if thin else batch
        shared, unique = self.scores(inputs, batch.counts)
        return self.decoder.entries(shared if unique is None else shared + unique, batch)

    def penalty(self, ridge: tuple[float, float], kernel: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return what the weights cost: those that are shared, and those of the unique encoders.

        Half the sum of squares of all matrices, times the ridge; and of the kernels', times theirs.
        """
        shared = sum(_penalty(part, ridge[0], kernel) for part in (self.shared, self.decoder))
        unique = 0.0 if self.unique is None else _penalty(self.unique, ridge[1], kernel)
        return shared, unique

    def of(self, place: int) -> AutoEncoder:
        """Return the same networks with the unique encoder of one source only."""
        return AutoEncoder(
            self.shared, _one(self.unique, place), self.decoder, self.n_folds, self.dropout
        )

    def alone(self, place: int) -> AutoEncoder:
        """Return a copy with the unique encoder of one source only."""
        return copy.deepcopy(self.of(place))

    def joined(self, others: Sequence[AutoEncoder]) -> AutoEncoder:
        """Return a copy with the unique encoders of others, one after the other."""
        made = copy.deepcopy(self)
        made.unique = _joined([other.unique for other in others])
        return made


def _one(unique: Any, place: int) -> Any:
    """Return a copy of the unique encoder of one source."""
    if isinstance(unique, Given):
        return Given([copy.deepcopy(unique.networks[place])])
    made = copy.deepcopy(unique)
    for layer in made.layers:
        for name, values in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(values.detach()[place : place + 1].clone()))
    return made


def _joined(parts: Sequence[Any]) -> Any:
    """Return the unique encoders of many sources in one stack."""
    if isinstance(parts[0], Given):
        return Given([copy.deepcopy(net) for part in parts for net in part.networks])
    made = copy.deepcopy(parts[0])
    for k, layer in enumerate(made.layers):
        for name, _ in list(layer.named_parameters()):
            stack = torch.cat([getattr(part.layers[k], name).detach() for part in parts])
            setattr(layer, name, nn.Parameter(stack))
    return made


def _penalty(part: Any, ridge: float, kernel: float) -> Tensor:
    if isinstance(part, Given):
        return ridge / 2 * sum((w**2).sum() for w in part.parameters() if w.ndim > 1)
    total: Tensor = 0.0
    for layer in part.layers:
        total = total + ridge / 2 * (layer.weight**2).sum()
        if layer.kernel is not None and kernel:
            total = total + kernel / 2 * (layer.mask() ** 2).sum()
    return total


def _repeated(rows: Tensor, counts: Sequence[int]) -> Tensor:
    return rows.repeat_interleave(torch.as_tensor(list(counts), device=rows.device), dim=0)


def make_networks(
    sizes: Sequence[int],
    n_sources: int,
    n_folds: int,
    seed: int,
    *,
    activation: str = "tanh",
    kernel: str | None = None,
    n_kernel: int = 5,
    encoder: MakeNetwork | None = None,
    decoder: MakeNetwork | None = None,
) -> AutoEncoder:
    """Return an auto-encoder with random weights.

    Parameters
    ----------
    sizes : sequence of int
        How many numbers go in, the units of the hidden layers, and the length of the scores.
    n_sources, n_folds, seed : int
    activation : str
        Of the hidden layers; the last one of encoders and decoder is linear.
    kernel, n_kernel
        As for `Layer`.
    encoder, decoder : callable, optional
        Networks of the user's own in the place of layers.

    Examples
    --------
    >>> from heterofactor.networks import make_networks
    >>> network = make_networks([9, 5, 4], n_sources=3, n_folds=1, seed=0)
    >>> [tuple(layer.weight.shape) for layer in network.unique.layers]
    [(3, 9, 5), (3, 5, 4)]
    """
    chance = torch.Generator().manual_seed(seed)
    names = [activation] * (len(sizes) - 2) + ["linear"]

    def layers(sizes: Sequence[int], n_sources: int | None = None) -> Layers:
        options: dict[str, Any] = {
            "kernel": kernel, "n_kernel": n_kernel, "n_sources": n_sources,
        }  # fmt: skip
        triples = zip(sizes[:-1], sizes[1:], names, strict=True)
        return Layers([Layer(a, b, chance, activation=n, **options) for a, b, n in triples])

    width, length = sizes[0], sizes[-1]
    with seeded(seed):  # for the user's own networks
        if encoder is None:
            shared: Any = layers(sizes)
            unique: Any = layers(sizes, n_sources)
        else:
            shared = Given([encoder(width, length)])
            unique = Given([encoder(width, length) for _ in range(n_sources)])
        last: Any = layers(sizes[::-1]) if decoder is None else Given([decoder(length, width)])
    return AutoEncoder(shared, unique, last, n_folds)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch's own random numbers start from a seed, and go on as before afterwards.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import seeded
    >>> with seeded(0):
    ...     first = torch.rand(1)
    >>> with seeded(0):
    ...     bool(torch.rand(1) == first)
    True
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def deflated(shared: Tensor, unique: Tensor, n_folds: int) -> Tensor:
    r"""Return unique scores without what lies in the span of the shared ones.

    Both are folded: scores e of length r become a matrix F(e) of `n_folds` columns; then

    .. math:: F(e_l) \leftarrow F(e_l) - F(e_g) (F(e_g)^\top F(e_g))^{-1} F(e_g)^\top F(e_l),

    by an orthonormal frame of the span, so that it is exact however nearly dependent the columns
    are. Differentiable in both.

    Parameters
    ----------
    shared, unique : tensor of shape (n_samples, r)
    n_folds : int
        A divisor of r; its square is less than r, or nothing would be left.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import deflated
    >>> deflated(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 4.0]]), 1)
    tensor([[0., 4.]])
    """
    folded = (len(shared), n_folds, -1)
    found = _Deflated.apply(shared.reshape(folded), unique.reshape(folded))
    return found.reshape(unique.shape)


class _Deflated(torch.autograd.Function):
    """Rows of B without what lies in the span of the rows of A: B - B P, with P = F' F."""

    @staticmethod
    def forward(ctx: Any, shared: Tensor, unique: Tensor) -> Tensor:
        frame = orthonormal_rows(shared)
        left = unique - (unique @ frame.mT) @ frame
        left = left - (left @ frame.mT) @ frame  # what rounding left, where B was nearly inside
        ctx.save_for_backward(shared, unique, frame, left)
        return left

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        shared, unique, frame, left = ctx.saved_tensors
        inside = slope @ frame.mT
        outside = slope - inside @ frame
        # A = L F; the coordinates of B and of the slope in A, B A^+ = B F' L^-1. Where A is
        # deficient L has no inverse: a ridge at the rounding error keeps the slope finite.
        lower = shared @ frame.mT
        gram = lower @ lower.mT
        floor = torch.finfo(gram.dtype).eps * gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        tiny = torch.finfo(gram.dtype).tiny
        gram = gram + torch.diag_embed((floor + tiny)[:, None].expand(gram.shape[:2]))
        both = torch.cat([unique @ frame.mT, inside], dim=-2) @ lower.mT
        size = lower.shape[-1]
        within, along = torch.linalg.solve(gram, both, left=False).split(size, dim=-2)
        return -(within.mT @ outside + along.mT @ left), outside


def orthonormal_rows(rows: Tensor) -> Tensor:
    """Return orthonormal rows that span the rows of each matrix of a stack.

    By Cholesky factors of their products, twice, which is many small matrices at a time; those that
    are too nearly dependent for it, by Householder's reflections.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import orthonormal_rows
    >>> orthonormal_rows(torch.tensor([[[2.0, 0.0, 0.0], [1.0, 3.0, 0.0]]]))
    tensor([[[1., 0., 0.],
             [0., 1., 0.]]])
    """
    found = rows
    for _ in range(2):
        lower, _ = torch.linalg.cholesky_ex(found @ found.mT)
        found = torch.linalg.solve_triangular(lower, found, upper=False)
    one = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
    off = (found @ found.mT - one).abs().amax(dim=(-2, -1))
    bad = ~(off < STRAIGHT * torch.finfo(rows.dtype).eps)  # not a number is bad, too
    if bool(bad.any()):
        again, _ = torch.linalg.qr(rows[bad].mT)
        found = found.clone()
        found[bad] = again.mT
    return found
