"""Train an autoencoder and use it as a factor model: the base class of Mult-VAE and RecVAE.

The last layer of both decoders is linear: the score of item j is w_j.h + b_j, where h is the output of the layer before
it for the user's history. So the network is a factor model with user vectors (h, 1) and item vectors (w_j, b_j). It
uses the ranking, evaluation, filters and batches of all models, and never needs an array of size users x items.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import importlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.registry import get_backend
from fairmf.baselines.network_file import load_network, save_network
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.data.weighting import likes_only
from fairmf.errors import InvalidData, InvalidParameter, MissingDependency
from fairmf.models import fit_loop
from fairmf.models.factor_model import FactorModel
from fairmf.models.fit_loop import Callback
from fairmf.models.fitted import Fitted, History, on_snapshot
from fairmf.models.objective import Objective
from fairmf.models.problem import Problem
from fairmf.params import check_settings, setting, settings_of
from fairmf.types import Array, Record
from fairmf.version import install_command

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch import device as torch_device
    from torch.optim import Optimizer

Self = TypeVar("Self", bound="Autoencoder")
Parameters: TypeAlias = "dict[str, Tensor]"
Network = dict[str, NDArray[np.float32]]


@dataclass
class Training:
    """The state of training, which every epoch changes in place."""

    torch: ModuleType
    device: torch_device
    generator: Generator
    parameters: Parameters
    optimisers: dict[str, Optimizer]
    updates: int = 0


@dataclass(frozen=True)
class NetworkState:
    """A copy of the network after an epoch (training changes it in place), and the mean loss terms of the epoch."""

    training: Training
    network: Network
    loss: float
    terms: dict[str, float]


@dataclass(eq=False)
class Autoencoder(FactorModel):
    """A variational autoencoder with a multinomial likelihood."""

    factors: int = setting(200, "Latent dimension.", symbol="d", low=1, integer=True)
    hidden: int = setting(600, "Units of a hidden layer.", low=1, integer=True)
    dropout: float = setting(0.5, "Share of a history that is hidden in training.", low=0, high=0.99)
    epochs: int = setting(200, "Largest number of training epochs.", low=1, integer=True)
    batch_size: int = setting(500, "Users per update.", low=1, integer=True)
    learning_rate: float = setting(1e-3, "Step size of Adam.", above=0)
    random_state: int | None = setting(0, "Seed; None draws one.", low=0, integer=True, choices=(None,))
    num_threads: int = setting(0, "Threads; 0 leaves them to PyTorch.", low=0, integer=True)
    device: str = setting(
        "cpu", "Where the network is trained; 'auto' takes a GPU where there is one.", choices=("cpu", "cuda", "auto")
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._network: Network | None = None

    tolerance = 0.0  # never stop by the loss: it is measured on random batches, which makes it too noisy

    # -- to be implemented by subclasses ----------------------------------------------------------------------------

    @abc.abstractmethod
    def _start(self, torch: ModuleType, n_items: int, generator: Generator, device: torch_device) -> Parameters:
        """Return the parameters before the first epoch."""

    @abc.abstractmethod
    def _trained(self, parameters: Parameters) -> dict[str, list[str]]:
        """Return the names of the parameters that each optimiser trains."""

    @abc.abstractmethod
    def _epoch(self, training: Training, data: Interactions) -> dict[str, float]:
        """Train one epoch in place; return the means of its loss terms, "loss" among them."""

    @abc.abstractmethod
    def _user_vectors(self, torch: ModuleType, parameters: Parameters, x: Tensor) -> Tensor:
        """Return the output of the layer before the last, with the latent variable at its mean."""

    @abc.abstractmethod
    def _shapes(self, n_items: int) -> dict[str, tuple[int, ...]]:
        """Return the parameters that prediction needs, and their shapes."""

    # -- fit --------------------------------------------------------------------------------------------------------

    def fit(
        self: Self,
        data: Interactions | Any,
        *,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Self:
        """Train the network and return the model itself.

        Parameters
        ----------
        data
            Interactions, or a SciPy sparse matrix with users as rows. Confidences count as repeated interactions.
        callbacks
            Called after every epoch: with `fairmf.EarlyStopping` on validation users the best epoch is kept.
        progress
            Whether to show a progress bar; None shows it in a terminal.

        Raises
        ------
        MissingDependency
            If PyTorch is not installed (extra `[vae]`).
        InvalidData
            If there are no interactions.
        """
        check_settings(self)
        torch = torch_or_error(type(self).__name__)
        device = find_device(torch, self.device, type(self).__name__)
        data = likes_only(as_interactions(data), type(self).__name__)
        if data.nnz == 0:
            raise InvalidData("There are no interactions to learn from.")
        # The fit loop needs a problem; an autoencoder uses its data only, not its weights of the objective F.
        problem = Problem(data, get_backend("cpu"), 0.0, 0.0, 0.0)
        with threads(torch, self.num_threads):
            generator = random_generator(torch, device, self.random_state)
            parameters = self._start(torch, data.n_items, generator, device)
            optimisers = {}
            for name, moved in self._trained(parameters).items():
                tensors = [parameters[key].requires_grad_() for key in moved]
                optimisers[name] = torch.optim.Adam(tensors, lr=self.learning_rate)
            start = _copied(Training(torch, device, generator, parameters, optimisers), {"loss": 0.0})
            try:
                state, history = fit_loop.run(
                    self, problem, start, lambda s: self._snapshot(data, s, History()),
                    fit_loop.Options(type(self).__name__, callbacks, objective_every=0, progress=progress),
                )  # fmt: skip
            except fit_loop.Diverged as error:
                self._keep(data, error.state, error.history)
                raise
            self._keep(data, state, history)
        return self

    # -- called by the fit loop (models/fit_loop.py) ------------------------------------------------------------------

    def epoch(self, problem: Problem, state: NetworkState) -> NetworkState:
        """Train one epoch."""
        return _copied(state.training, self._epoch(state.training, problem.interactions))

    def finish(self, problem: Problem, state: NetworkState) -> NetworkState:  # noqa: ARG002
        """Return the state unchanged: there is nothing to finish."""
        return state

    def objective(self, problem: Problem, state: NetworkState) -> Objective:  # noqa: ARG002
        """Raise InvalidParameter: an autoencoder has a loss, but not the objective F of other models."""
        raise InvalidParameter(f"{type(self).__name__} does not minimise F.", hint="see history.column('loss')")

    def report(
        self, problem: Problem, before: object, after: NetworkState, value: Objective | None  # noqa: ARG002
    ) -> Record:  # fmt: skip
        """Return the mean loss terms of the epoch."""
        return dict(after.terms)

    def remedy(self) -> str:
        """Return advice for a training that diverged."""
        return f"Lower learning_rate (now {self.learning_rate:g})."

    def _snapshot(self: Self, data: Interactions, state: NetworkState, history: History) -> Self:
        model = copy.copy(self)
        model._keep(data, state, history)
        return model

    def _keep(self, data: Interactions, state: NetworkState, history: History) -> None:
        # Users are encoded by a copy: other threads see the old model until `_restore` sets all at once.
        made = copy.copy(self)
        made._network = network = {name: state.network[name] for name in self._shapes(data.n_items)}
        ids = {"user_ids": data.user_ids, "item_ids": data.item_ids}
        self._restore(network, made._encoded(data), data.by_item.sums(), ids, history, data)

    def _restore(
        self,
        network: Network,
        users: NDArray[np.float32],
        popularity: NDArray[np.float64],
        ids: dict[str, Ids | None],
        history: History,
        data: Interactions | None,
    ) -> None:
        """Set the network and the factors that follow from it."""
        items = np.column_stack((network["decoder.weight"], network["decoder.bias"]))
        fitted = Fitted(
            user_factors=users,
            item_factors=items,
            user_ids=ids["user_ids"],
            item_ids=ids["item_ids"],
            popularity=popularity,
            mean_user=users.mean(axis=0, dtype=np.float64),
            merit=np.zeros(items.shape[1]),  # no fairness term, so nothing to turn with the dial
            trained_fairness=0.0,
            fairness=0.0,
            history=history,
            settings=settings_of(self),
            interactions=data,
            weighting=None if data is None else data.weighting,
        )
        # Set both in one step, so that a thread that copies the model at this moment gets both or neither.
        vars(self).update(_network=network, _fitted=fitted)

    # -- users ------------------------------------------------------------------------------------------------------

    @on_snapshot
    def fold_in(self, history: Interactions | Any, **options: Any) -> Array:
        """Return the vectors of users with these histories; the last column is 1, for the items' biases."""
        if options:
            name = type(self).__name__
            if "fairness" in options:
                raise InvalidParameter(f"{name} has no fairness to turn.", hint="FairALS, FiADMM and IALS have")
            raise TypeError(f"{name} takes no fold-in options, got {', '.join(options)}.")
        return self._encoded(self._aligned(history))

    def _encoded(self, data: Interactions) -> NDArray[np.float32]:
        torch = torch_or_error(type(self).__name__)
        device = find_device(torch, self.device, type(self).__name__)
        network = self._fitted_network()
        width = network["decoder.weight"].shape[1]
        # The last column stays 1.
        out = np.ones((data.n_users, width + 1), dtype=np.float32)
        with threads(torch, self.num_threads), torch.no_grad():
            parameters = {name: torch.from_numpy(array).to(device) for name, array in network.items()}
            for start in range(0, data.n_users, self.batch_size):
                stop = min(start + self.batch_size, data.n_users)
                x = dense_rows(torch, data.by_user.block(start, stop), data.n_items, device)
                out[start:stop, :width] = self._user_vectors(torch, parameters, x).cpu().numpy()
        return out

    def _fitted_network(self) -> Network:
        if self._network is None:
            _ = self.fitted  # raises NotFitted before a fit
            raise InvalidData(f"This {type(self).__name__} has no network.")
        return self._network

    # -- batches of training ----------------------------------------------------------------------------------------

    def _batches(self, training: Training, data: Interactions) -> Iterator[Tensor]:
        """Yield all users that have interactions, in a random order, as dense batches."""
        torch, rows = training.torch, data.by_user
        # An empty history has nothing to reconstruct.
        known = np.flatnonzero(np.diff(rows.indptr) > 0)
        # A generator draws on its own device only.
        order = torch.randperm(len(known), generator=training.generator, device=training.device).cpu().numpy()
        for start in range(0, len(known), self.batch_size):
            chosen = known[order[start : start + self.batch_size]]
            yield dense_rows(torch, rows.take(chosen), data.n_items, training.device)

    # -- files ------------------------------------------------------------------------------------------------------

    @on_snapshot
    def save(  # type: ignore[override]
        self, path: str | os.PathLike[str], *, interactions: bool = True, user_sensitivity: bool | None = None
    ) -> None:
        """Write the fitted model to one file, which `load` of the same class reads. An existing file is replaced."""
        if user_sensitivity:
            raise InvalidParameter(f"{type(self).__name__} has no dial, so no user_sensitivity.")
        save_network(self, path, interactions=interactions)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:  # type: ignore[override]
        """Load a model that `save` wrote; raise BrokenFile if the file is damaged."""
        return load_network(cls, path)


def _copied(training: Training, terms: dict[str, float]) -> NetworkState:
    # On a CPU, `numpy` shares the tensor's memory, which the next epoch changes.
    network = {name: x.detach().cpu().numpy().copy() for name, x in training.parameters.items()}
    return NetworkState(training, network, terms["loss"], terms)


# -- layers and losses as functions of tensors. Parameters are in dictionaries, so that files need no pickle ----------


def dense_rows(torch: ModuleType, rows: Rows, n_items: int, device: torch_device) -> Tensor:
    """Return a batch of sparse rows as a dense matrix, batch x items."""
    matrix = np.zeros((rows.count, n_items), dtype=np.float32)
    users = np.repeat(np.arange(rows.count), np.diff(rows.indptr))
    matrix[users, rows.indices] = 1.0 if rows.weights is None else rows.weights
    return torch.from_numpy(matrix).to(device)


def normalised(x: Tensor) -> Tensor:
    """Scale rows to length 1; rows of zeros stay zero."""
    return x / x.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)


def dropped(torch: ModuleType, x: Tensor, rate: float, generator: Generator) -> Tensor:
    """Apply dropout: set each number to 0 with probability `rate`, and scale the others so that the mean stays."""
    if rate == 0:
        return x
    kept = torch.rand(x.shape, generator=generator, device=x.device) >= rate
    return x * kept / (1 - rate)


def linear(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    """Return x W' + b."""
    return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]


def sampled(torch: ModuleType, mu: Tensor, logvar: Tensor, generator: Generator) -> Tensor:
    """Draw from Normal(mu, exp(logvar)) by the reparametrisation trick, so that gradients pass through."""
    noise = torch.randn(mu.shape, generator=generator, device=mu.device)
    return mu + (0.5 * logvar).exp() * noise


def multinomial_loss(torch: ModuleType, logits: Tensor, x: Tensor) -> Tensor:
    """Return - sum_j x_j log softmax_j for every row: the negative log likelihood up to a constant."""
    return -(torch.log_softmax(logits, dim=1) * x).sum(1)


def kl_to_standard(mu: Tensor, logvar: Tensor) -> Tensor:
    """Return KL(Normal(mu, exp(logvar)) | Normal(0, 1)) for every row."""
    return 0.5 * (mu.square() + logvar.exp() - logvar - 1).sum(1)


def log_normal(x: Tensor, mu: Tensor, logvar: Tensor) -> Tensor:
    """Return log Normal(x; mu, exp(logvar)) for every coordinate."""
    return -0.5 * (logvar + math.log(2 * math.pi) + (x - mu).square() / logvar.exp())


def uniform_layer(
    torch: ModuleType,
    name: str,
    inputs: int,
    outputs: int,
    weight: float,
    bias: float,
    generator: Generator,
    device: torch_device,
) -> Parameters:
    """Return a layer with weights and biases uniform within +-weight and +-bias."""
    shapes = {f"{name}.weight": ((outputs, inputs), weight), f"{name}.bias": ((outputs,), bias)}
    return {
        key: (2 * torch.rand(shape, generator=generator, device=device) - 1) * limit
        for key, (shape, limit) in shapes.items()
    }


# -- PyTorch: the package, the device, its threads and its random numbers ---------------------------------------------


def torch_or_error(who: str) -> ModuleType:
    """Import PyTorch; raise MissingDependency, which says how to install it, if it is missing."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingDependency(f"{who} needs PyTorch: {install_command('vae')}") from error


def find_device(torch: ModuleType, name: str, who: str) -> torch_device:
    """Return the device of that name ("auto": a GPU if there is one); raise InvalidParameter if it is missing."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidParameter(
            f"The 'device' parameter of {who} is 'cuda', but PyTorch finds no GPU here. Use device='cpu'."
        )
    return torch.device(name)


@contextlib.contextmanager
def threads(torch: ModuleType, num_threads: int) -> Iterator[None]:
    """Use this many threads (0: PyTorch's own number), and restore the number on exit."""
    before = torch.get_num_threads()
    if num_threads > 0:
        torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def random_generator(torch: ModuleType, device: torch_device, random_state: int | None) -> Generator:
    """Return a random generator for one fit; a seed of None draws one. PyTorch's global generator is not used."""
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if random_state is None else int(random_state)
    return torch.Generator(device=device).manual_seed(seed)
