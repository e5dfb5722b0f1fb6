"""The networks and their loss terms against plain NumPy, and their gradients against finite differences."""

import numpy as np
import pytest
from conftest import random_rows
from naive import autoencoders as naive

from fairmf import MultVAE, RecVAE
from fairmf.baselines import autoencoder, mult_vae, rec_vae
from fairmf.baselines.autoencoder import Training
from fairmf.data.interactions import Interactions

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-slow installs it")
pytestmark = pytest.mark.slow  # with PyTorch, which the quick tests do without

M, DRAW = 12, 0.7
DATA = {w: Interactions(random_rows(9, M, density=0.4, weighted=w), M) for w in (False, True)}
MODELS = {
    "MultVAE": MultVAE(factors=3, hidden=5, dropout=0.0),
    "RecVAE": RecVAE(factors=3, hidden=5, dropout=0.0, kl_scale=0.1),
}


@pytest.fixture(params=MODELS)
def model(request, monkeypatch):
    for module in (mult_vae, rec_vae):  # the draw is fixed, so that the loss is a function
        monkeypatch.setattr(module, "sampled", lambda torch, mu, logvar, _: mu + DRAW * (logvar / 2).exp())
    return MODELS[request.param]


def training_of(model):
    """The start of a fit in float64, every parameter moved so that no two are alike and none is zero."""
    cpu = torch.device("cpu")
    generator = autoencoder.random_generator(torch, cpu, 3)
    start = model._start(torch, M, generator, cpu)
    moved = {k: v.double() + 0.3 * torch.randn(v.shape, generator=generator).double() for k, v in start.items()}
    return Training(torch, cpu, generator, moved, {})


def numpy_network(training):
    return {name: tensor.detach().numpy() for name, tensor in training.parameters.items()}


def terms(model, training, x):
    return model._terms(training, x, 0.0) if isinstance(model, RecVAE) else model._terms(training, x)


def batch(weighted):
    return autoencoder.dense_rows(torch, DATA[weighted].by_user, M, torch.device("cpu")).double()


def expected(model, network, x):
    return naive.rec_vae(network, x, DRAW, 0.1) if isinstance(model, RecVAE) else naive.mult_vae(network, x, DRAW)


def test_dense_rows_are_the_matrix(weighted):
    np.testing.assert_array_equal(batch(weighted).numpy(), DATA[weighted].to_csr().toarray())


def test_forward_and_loss_terms_are_those_of_the_papers(model, weighted):
    training, x = training_of(model), batch(weighted)
    network = numpy_network(training)
    rows = [expected(model, network, row) for row in x.numpy()]
    vectors = model._user_vectors(torch, training.parameters, x)
    np.testing.assert_allclose(vectors.numpy(), [row[0] for row in rows], atol=1e-10)
    reconstruction, kl = terms(model, training, x)
    assert float(reconstruction) == pytest.approx(np.mean([row[1] for row in rows]))
    assert float(kl) == pytest.approx(np.mean([row[2] for row in rows]))


def test_gradients_are_finite_differences(model):
    training, x = training_of(model), batch(False)
    trained = [name for group in model._trained(training.parameters).values() for name in group]
    for name in trained:
        training.parameters[name].requires_grad_()
    sum(terms(model, training, x)).backward()
    generator, step = np.random.default_rng(0), 1e-6
    for name in trained:
        tensor = training.parameters[name]
        place = tuple(int(generator.integers(size)) for size in tensor.shape)
        found = float(tensor.grad[place])
        values = []
        with torch.no_grad():
            for side in (step, -step):
                tensor[place] += side
                values.append(float(sum(terms(model, training, x))))
                tensor[place] -= side
        assert found == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4, abs=1e-6), name


def test_the_prior_passes_no_gradient_to_the_old_encoder():
    model = MODELS["RecVAE"]
    training = training_of(model)
    for tensor in training.parameters.values():
        tensor.requires_grad_()
    sum(terms(model, training, batch(False))).backward()
    assert all(t.grad is None for name, t in training.parameters.items() if name.startswith("old."))


def test_a_user_without_history_has_finite_vectors(model):
    training = training_of(model)
    found = model._user_vectors(torch, training.parameters, torch.zeros(1, M).double())
    assert torch.isfinite(found).all()


def test_draws_have_the_mean_and_variance_they_should():
    generator = torch.Generator().manual_seed(0)
    mu, logvar = torch.full((200_000, 1), 2.0), torch.full((200_000, 1), -1.0)
    drawn = autoencoder.sampled(torch, mu, logvar, generator)
    assert float(drawn.mean()) == pytest.approx(2.0, abs=0.01)
    assert float(drawn.var()) == pytest.approx(np.exp(-1.0), abs=0.01)


def test_dropout_hides_a_share_and_keeps_the_mean():
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(400, 500)
    hidden = autoencoder.dropped(torch, x, 0.3, generator)
    assert float((hidden == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert float(hidden.mean()) == pytest.approx(1.0, abs=0.01)
    assert autoencoder.dropped(torch, x, 0.0, generator) is x


def test_starts_are_those_of_the_papers():
    cpu, generator = torch.device("cpu"), torch.Generator().manual_seed(0)
    glorot = MultVAE(factors=40, hidden=300)._start(torch, 500, generator, cpu)
    limit = np.sqrt(6 / (500 + 300))
    assert float(glorot["encoder.weight"].abs().max()) == pytest.approx(limit, rel=0.01)
    assert float(glorot["encoder.weight"].std()) == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert float(glorot["decoder.bias"].abs().max()) <= mult_vae.SMALL_BIAS
    usual = RecVAE(factors=40, hidden=300)._start(torch, 500, generator, cpu)
    assert float(usual["layer0.weight"].abs().max()) == pytest.approx(1 / np.sqrt(500), rel=0.01)
    assert float(usual["decoder.weight"].abs().max()) == pytest.approx(1 / np.sqrt(40), rel=0.01)
    assert torch.equal(usual["old.mu.weight"], usual["mu.weight"])
    assert usual["old.mu.weight"] is not usual["mu.weight"]
