"""Threads that ask a model while another fits it again: every answer is that of one fit, whole."""

import threading

import numpy as np
import pytest

from fairmf import FairALS, Interactions, Popularity, synthetic


def without_ids(*size):
    data = synthetic(*size)
    return Interactions(data.by_user, data.n_items)


SMALL, LARGE = without_ids(40, 30, 500), without_ids(900, 700, 30_000)
USERS = np.arange(40)
HISTORY = [1, 5, 7]


def fitted(data):
    return FairALS(factors=8, epochs=1).fit(data, progress=False)


def same(a, b):
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return np.shape(a) == np.shape(b) and np.array_equal(a, b, equal_nan=True)


# Users 0..39 and items 0..29 are known to both fits.
QUESTIONS = {
    "recommend": lambda model: model.recommend(USERS, N=25, by="row"),
    "recommend dialled": lambda model: model.recommend(USERS[:5], N=5, by="row", fairness=2.0),
    "similar_items": lambda model: model.similar_items(3, N=10),
    "similar_users": lambda model: model.similar_users(3, N=10),
    "fold_in_user": lambda model: model.fold_in_user(HISTORY),
    "score": lambda model: model.score(USERS[:3], USERS[:3]),
    "explain": lambda model: model.explain(2, 4).score,
    "batches": lambda model: tuple(batch[1:] for batch in model.recommend_batches(USERS, N=5, by="row", batch_size=7)),
    "with_fairness": lambda model: model.with_fairness(2.0).recommend(USERS[:5], N=5, by="row"),
}


def test_answers_are_those_of_one_fit_while_the_model_is_fitted_again():
    fits = [fitted(SMALL)._fitted, fitted(LARGE)._fitted]
    model = fitted(SMALL)
    expected = {}
    for name, ask in QUESTIONS.items():
        answers = []
        for fit in fits:
            model._fitted = fit
            answers.append(ask(model))
        expected[name] = answers
    stop, wrong, asked = threading.Event(), [], dict.fromkeys(QUESTIONS, 0)

    def refit():
        while not stop.is_set():
            for fit in fits:  # what `fit` ends with, more often than any fit could
                model._fitted = fit
        model.fit(LARGE, progress=False)

    def serve(names):
        while not stop.is_set():
            for name in names:
                try:
                    answer = QUESTIONS[name](model)
                except Exception as error:
                    wrong.append((name, repr(error)))
                    return
                asked[name] += 1
                if not any(same(answer, one) for one in expected[name]):
                    wrong.append((name, "an answer of neither"))

    names = list(QUESTIONS)
    workers = [threading.Thread(target=serve, args=(names[k::3],)) for k in range(3)]
    workers += [threading.Thread(target=refit)]
    for worker in workers:
        worker.start()
    timer = threading.Timer(0.7, stop.set)
    timer.start()
    for worker in workers:
        worker.join(timeout=30)
    assert not wrong, wrong[:3]
    assert min(asked.values()) > 0


@pytest.mark.parametrize("make", [lambda: FairALS(factors=4, epochs=1), Popularity])
def test_what_a_model_was_when_asked_is_what_an_iterator_goes_on_with(make):
    model = make().fit(LARGE)
    history = LARGE.take_users(np.arange(50))
    expected = [batch.ids.tolist() for batch in model.recommend_batches(np.arange(50), N=5, by="row", batch_size=10)]
    ranked = [lists.tolist() for _, lists in model.rank(history, 5)]
    batches = model.recommend_batches(np.arange(50), N=5, by="row", batch_size=10)
    lists = model.rank(history, 5)
    first = next(batches)
    model.fit(SMALL)
    assert [first.ids.tolist(), *(batch.ids.tolist() for batch in batches)] == expected
    assert [block.tolist() for _, block in lists] == ranked
