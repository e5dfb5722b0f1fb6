"""Mult-VAE and RecVAE as models: training, prediction, seeds, and the front they share with all others."""

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import random_rows

from fairmf import EarlyStopping, MultVAE, Popularity, RecVAE, evaluate, split_by_user, synthetic_events
from fairmf.baselines import autoencoder
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite, NotFitted

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-slow installs it")
pytestmark = pytest.mark.slow  # with PyTorch, which the quick tests do without

SMALL = {w: Interactions(random_rows(60, 25, density=0.25, weighted=w), 25) for w in (False, True)}
SIZES = {"factors": 4, "hidden": 8, "epochs": 3, "batch_size": 16, "learning_rate": 1e-2, "num_threads": 1}
MAKERS = {"MultVAE": MultVAE, "RecVAE": RecVAE}


@pytest.fixture(params=MAKERS)
def make(request):
    return lambda **settings: MAKERS[request.param](**SIZES | settings)


@pytest.fixture(scope="module")
def split():
    events = synthetic_events(n_users=900, n_items=300, n_interactions=30_000)
    return split_by_user(events, heldout=100)


def test_scores_are_the_decoders_logits_and_lists_their_order(make, weighted):
    data = SMALL[weighted]
    model = make().fit(data)
    x = torch.from_numpy(data.to_csr().toarray().astype(np.float32))
    network = {name: torch.from_numpy(array) for name, array in model._network.items()}
    hidden = model._user_vectors(torch, network, x)
    logits = (hidden @ network["decoder.weight"].T + network["decoder.bias"]).numpy()
    np.testing.assert_allclose(model.user_factors @ model.item_factors.T, logits, atol=1e-4)
    lists, scores = model.recommend(np.arange(1, 60), N=25, filter_already_liked_items=False)
    np.testing.assert_allclose(np.take_along_axis(logits[1:], lists, 1), scores, atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()
    np.testing.assert_allclose(model.fold_in(data), model.user_factors, atol=1e-6)
    np.testing.assert_array_equal(model.user_factors[:, -1], 1)


def test_a_users_vector_does_not_depend_on_the_batch(make):
    model = make().fit(SMALL[False])
    whole = model.fold_in(SMALL[False])
    model.batch_size = 7
    np.testing.assert_allclose(model.fold_in(SMALL[False]), whole, atol=1e-6)
    np.testing.assert_allclose(model.fold_in(SMALL[False].take_users(np.array([5])))[0], whole[5], atol=1e-6)


def test_the_same_seed_gives_the_same_bits_and_leaves_pytorchs_numbers_alone(make):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    models = [make(random_state=seed, num_threads=1).fit(SMALL[True]) for seed in (4, 4, 5)]
    assert torch.equal(torch.random.get_rng_state(), before)
    one, again, other = (model.item_factors for model in models)
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(models[0].user_factors, models[1].user_factors)
    assert np.abs(one - other).max() > 0.01
    assert np.abs(one - make(random_state=None, num_threads=1).fit(SMALL[True]).item_factors).max() > 0.01


def test_threads_are_given_back(make):
    before = torch.get_num_threads()
    make(num_threads=1, epochs=1).fit(SMALL[False])
    assert torch.get_num_threads() == before


def test_it_learns_a_tiny_data_set_by_heart(make):
    """Two kinds of users with items of their own: after training nobody is given an item of the others."""
    blocks = np.zeros((20, 12), dtype=np.float32)
    blocks[:10, :6] = blocks[10:, 6:] = 1
    import scipy.sparse as sp

    model = make(epochs=150, dropout=0.0).fit(Interactions.from_csr(sp.csr_array(blocks)))
    lists, _ = model.recommend(np.arange(20), N=6, filter_already_liked_items=False)
    assert (np.sort(lists[:10]) == np.arange(6)).all()
    assert (np.sort(lists[10:]) == np.arange(6, 12)).all()
    losses = model.history.column("reconstruction")
    assert losses[-1] == pytest.approx(6 * np.log(6), rel=0.05)  # a uniform choice among six is all there is to know
    assert losses[0] > losses[-1] + 1


SETTINGS = {
    "MultVAE": {"factors": 16, "hidden": 48, "epochs": 40, "batch_size": 50, "anneal_steps": 2000},
    "RecVAE": {"factors": 16, "hidden": 48, "epochs": 8, "batch_size": 50},
}


@pytest.mark.parametrize("name", MAKERS)
def test_it_beats_popularity_and_early_stopping_keeps_the_best_epoch(name, split):
    stopping = EarlyStopping(split.validation, patience=10)
    model = MAKERS[name](**SETTINGS[name], learning_rate=5e-3, num_threads=1)
    model.fit(split.train, callbacks=[stopping], progress=False)
    wanted = {"metrics": ["ndcg@100"]}
    found, popular = (
        evaluate(m, split.validation, **wanted)["ndcg@100"] for m in (model, Popularity().fit(split.train))
    )
    assert found > 1.2 * popular
    assert found == pytest.approx(stopping.best_value)
    assert model.history.kept_epoch == stopping.best_epoch
    curve = [record["validation"]["ndcg@100"] for record in model.history.records]
    assert found == pytest.approx(max(curve))
    assert np.mean(curve[-3:]) > curve[0]


def test_the_guides_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).resolve().parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL):
        exec(compile(block, "baselines.md", "exec"), {})
    assert (tmp_path / "model.fairmf").exists()


# -- what is particular to each --------------------------------------------------------------------------------------


def test_the_kl_weight_rises_with_the_updates_to_its_cap():
    model = MultVAE(anneal_cap=0.2, anneal_steps=100)
    assert [model.kl_weight(k) for k in (0, 1, 10, 20, 21, 1000)] == [0.0, 0.01, 0.1, 0.2, 0.2, 0.2]
    fitted = MultVAE(**SIZES, anneal_cap=0.05, anneal_steps=100).fit(SMALL[False])
    # 59 users with interactions in batches of 16: four updates an epoch.
    assert fitted.history.column("kl_weight") == pytest.approx([0.04, 0.05, 0.05])


def test_the_annealed_weight_is_in_the_loss():
    for record in MultVAE(**SIZES, anneal_cap=0.5, anneal_steps=1).fit(SMALL[False]).history.records[1:]:
        assert record["loss"] == pytest.approx(record["reconstruction"] + 0.5 * record["kl"])


def test_encoder_and_decoder_are_trained_in_turns_and_the_prior_follows(monkeypatch):
    seen = []
    real = RecVAE._pass

    def spy(self, training, data, part, dropout):
        before = {name: tensor.detach().clone() for name, tensor in training.parameters.items()}
        result = real(self, training, data, part, dropout)
        moved = {name for name, tensor in training.parameters.items() if not torch.equal(tensor, before[name])}
        seen.append((part, dropout, moved, {name: t.detach().clone() for name, t in training.parameters.items()}))
        return result

    monkeypatch.setattr(RecVAE, "_pass", spy)
    RecVAE(**SIZES | {"epochs": 1}, encoder_passes=2, decoder_passes=1, dropout=0.4).fit(SMALL[False])
    assert [(part, dropout) for part, dropout, _, _ in seen] == [("encoder", 0.4), ("encoder", 0.4), ("decoder", 0.0)]
    own = {name for name in seen[0][3] if not name.startswith(("old.", "decoder"))}
    assert seen[0][2] == own
    assert seen[2][2] == {"decoder.weight", "decoder.bias"}
    for name in own:  # the prior is the encoder of the turn that has ended, and was not before
        assert torch.equal(seen[2][3]["old." + name], seen[1][3][name])
        assert not torch.equal(seen[1][3]["old." + name], seen[1][3][name])


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (MultVAE, {"factors": 0}, "'factors' parameter of MultVAE must be an integer >= 1. Got 0 instead."),
        (MultVAE, {"dropout": 1.0}, "'dropout' parameter of MultVAE must be a number >= 0 and <= 0.99"),
        (MultVAE, {"anneal_cap": -1}, "'anneal_cap' parameter of MultVAE must be a number >= 0"),
        (RecVAE, {"kl_scale": -1}, "'kl_scale' parameter of RecVAE"),
        (RecVAE, {"device": "tpu"}, "'device' parameter of RecVAE must be 'cpu' or 'cuda' or 'auto'"),
        (RecVAE, {"learning_rate": 0}, "'learning_rate' parameter of RecVAE must be a number > 0"),
    ],
)
def test_bad_settings(make, settings, message):
    with pytest.raises(InvalidParameter) as error:
        make(**settings).fit(SMALL[False])
    assert message in str(error.value)


def test_no_gpu_no_dial_no_data(make, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InvalidParameter, match="PyTorch finds no GPU here"):
        make(device="cuda").fit(SMALL[False])
    with pytest.raises(NotFitted, match="not fitted yet"):
        make().recommend(0)
    with pytest.raises(InvalidData, match="no interactions to learn from"):
        make().fit(Interactions(SMALL[False].by_user.block(0, 1), 25))
    model = make(epochs=1).fit(SMALL[False])
    with pytest.raises(InvalidParameter, match="has no fairness to turn"):
        model.recommend(3, fairness=1.0)
    with pytest.raises(TypeError, match="takes no fold-in options, got method"):
        model.fold_in(SMALL[False], method="cohort")


def test_a_loss_that_is_not_finite_ends_the_fit_and_the_last_good_epoch_is_kept(make, monkeypatch):
    real, calls = autoencoder.Autoencoder.epoch, []

    def breaking(self, problem, state):
        calls.append(state)
        if len(calls) == 3:
            for tensor in state.training.parameters.values():
                with torch.no_grad():
                    tensor.fill_(float("nan"))
        return real(self, problem, state)

    monkeypatch.setattr(autoencoder.Autoencoder, "epoch", breaking)
    model = make()
    with pytest.raises(NotFinite, match=r"loss is not finite any more in epoch 3\. Lower learning_rate"):
        model.fit(SMALL[False])
    assert model.history.verdict == "diverged"
    np.testing.assert_array_equal(model.item_factors[:, :-1], calls[2].network["decoder.weight"])
    assert np.isfinite(model.user_factors).all()
