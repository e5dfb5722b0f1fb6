"""What the server answers is what the library answers; what it cannot answer it says."""

import numpy as np
import pytest
from asgi_client import numbered_model, small_model, titles_and_groups

from fairmf import HistoryRequest, Popularity, synthetic
from fairmf.errors import InvalidData
from fairmf.serve import app


@pytest.fixture(scope="module")
def numbered():
    return numbered_model()


def names(model, *rows):
    return [str(x) for x in model.fitted.item_ids.values[list(rows)]]


def expected(model, **request):
    (answer,) = model.recommend_histories([HistoryRequest(**request)])
    return answer


@pytest.mark.parametrize("evenness", [None, 0.0, 0.35, 1.0])
@pytest.mark.parametrize("weights", [None, [1.0, 2.5, 0.5]])
def test_a_list_for_a_history_is_the_librarys(ask, served_model, evenness, weights):
    history = names(served_model, 3, 40, 7)
    answer = ask().post("/v1/recommend", {"history": history, "weights": weights, "n": 7, "evenness": evenness}).json
    found = expected(served_model, items=history, weights=weights, N=7, evenness=evenness)
    assert answer["ids"] == found.ids.tolist()
    assert answer["scores"] == found.scores.tolist()
    assert answer["evenness"] == evenness
    assert "fallback" not in answer
    assert "titles" not in answer


def test_a_list_for_a_stored_user_leaves_out_what_the_user_had(ask, served_model):
    user = served_model.fitted.user_ids.values[5]
    answer = ask().post("/v1/recommend", {"user": int(user), "n": 10}).json
    ids, scores = served_model.recommend(user, N=10)
    assert answer["ids"] == ids.tolist()
    assert answer["scores"] == scores.tolist()
    kept = ask().post("/v1/recommend", {"user": int(user), "n": 60, "filter_liked": False}).json
    assert len(kept["ids"]) == 60


def test_the_history_counts_where_a_user_is_named_too(ask, served_model):
    client, history = ask(), names(served_model, 1, 2)
    both = client.post("/v1/recommend", {"user": int(served_model.fitted.user_ids.values[5]), "history": history})
    assert both.json == client.post("/v1/recommend", {"history": history}).json


def test_candidates_and_exclusions(ask, served_model):
    history, among, out = names(served_model, 1), names(served_model, 5, 6, 7, 8), names(served_model, 6)
    answer = ask().post("/v1/recommend", {"history": history, "items": among, "exclude": out, "n": 20}).json
    assert sorted(answer["ids"]) == sorted(set(among) - set(out))
    assert answer["ids"] == expected(served_model, items=history, candidates=among, exclude=out, N=3).ids.tolist()


def test_a_batch_is_its_single_requests(ask, served_model):
    client = ask()
    requests = [{"history": names(served_model, k, k + 9), "n": 3 + k, "evenness": k / 5} for k in range(5)]
    batch = client.post("/v1/recommend", {"requests": requests}).json
    assert batch["answers"] == [client.post("/v1/recommend", request).json for request in requests]
    assert {batch["model"]} == {answer["model"] for answer in batch["answers"]}


def test_a_history_may_hold_an_item_called_requests(ask):
    answer = ask().post("/v1/recommend", {"history": ["requests"], "n": 2}).json
    assert answer["unknown_items"] == ["requests"]


def test_unknown_users_get_popular_items_and_are_told(ask, served_model):
    answer = ask().post("/v1/recommend", {"user": 10**9, "n": 4, "evenness": 0.4}).json
    assert answer["fallback"] == "popular"
    assert answer["unknown_user"] is True
    assert answer["ids"] == expected(served_model, items=(), N=4, evenness=0.4).ids.tolist()
    assert answer["scores"] == [None] * 4


def test_unknown_items_are_named_and_the_rest_is_used(ask, served_model):
    known = names(served_model, 2, 3)
    answer = ask().post("/v1/recommend", {"history": ["nothing", *known, 7], "n": 5}).json
    assert answer["unknown_items"] == ["nothing", 7]
    assert answer["ids"] == expected(served_model, items=known, N=5).ids.tolist()


def test_numbers_may_come_as_text_and_text_as_numbers(ask, numbered):
    client = ask(numbered)
    assert (
        client.post("/v1/recommend", {"history": ["3", "11"]}).json
        == client.post("/v1/recommend", {"history": [3, 11]}).json
    )
    assert client.post("/v1/recommend", {"history": ["03", -1, 40], "n": 1}).json["unknown_items"] == ["03", -1, 40]


def test_a_higher_evenness_than_allowed_is_served_at_the_limit(ask, served_model):
    history = names(served_model, 3)
    answer = ask(limits={"evenness": 0.5}).post("/v1/recommend", {"history": history, "evenness": 0.9}).json
    assert answer["evenness"] == 0.5
    assert answer["ids"] == expected(served_model, items=history, evenness=0.5).ids.tolist()


def test_titles_come_with_the_items(ask, served_model):
    client = ask(catalogue=titles_and_groups(served_model))
    first, second = names(served_model, 0, 1)
    answer = client.post("/v1/recommend", {"history": names(served_model, 9), "items": [first, second]}).json
    assert dict(zip(answer["ids"], answer["titles"], strict=True)) == {first: first, second: "Title 1"}


def test_explanations_add_up(ask, served_model):
    history = names(served_model, 3, 40)
    answer = ask().post("/v1/recommend", {"history": history, "n": 3, "evenness": 0.3, "explain": True}).json
    for item, score, why in zip(answer["ids"], answer["scores"], answer["explanations"], strict=True):
        assert why["id"] == item
        parts = sum(part["amount"] for part in why["contributions"])
        assert parts - why["fairness_cost"] + why["offset"] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("who", ["history", "user"])
@pytest.mark.parametrize("evenness", [None, 0.6])
def test_scores_are_those_of_the_lists(ask, served_model, who, evenness):
    whose = {"history": names(served_model, 3, 40)} if who == "history" else {
        "user": int(served_model.fitted.user_ids.values[2])}  # fmt: skip
    client = ask()
    listed = client.post("/v1/recommend", {**whose, "n": 5, "evenness": evenness}).json
    scored = client.post("/v1/score", {**whose, "items": [*listed["ids"], "?"], "evenness": evenness}).json
    assert scored["ids"] == listed["ids"]
    np.testing.assert_allclose(scored["scores"], listed["scores"], rtol=1e-4, atol=1e-6)
    assert scored["unknown_items"] == ["?"]


def test_explain_is_the_librarys(ask, served_model):
    user, item = served_model.fitted.user_ids.values[2], names(served_model, 11)[0]
    answer = ask().post("/v1/explain", {"user": int(user), "item": item, "contributions": 3}).json
    found = served_model.explain(user, item)
    assert answer["explanation"]["score"] == pytest.approx(found.score)
    assert [part["id"] for part in answer["explanation"]["contributions"]] == [
        str(x) for x, _ in found.contributions[:3]
    ]


def test_similar_items_leave_out_the_item_itself(ask, served_model):
    item, out = names(served_model, 4, 5)
    answer = ask().post("/v1/similar", {"item": item, "n": 5, "exclude": [out]}).json
    ids, cosines = served_model.similar_items(item, 6, filter_items=[item, out])
    assert answer["ids"] == ids[:5].tolist()
    assert answer["similarities"] == cosines[:5].tolist()


def test_items_are_found_by_title_and_by_id(ask, served_model):
    client = ask(catalogue=titles_and_groups(served_model))
    found = client.post("/v1/items", {"query": "TITLE 5", "n": 20}).json["items"]
    assert {item["title"] for item in found} == {"Title 5", *(f"Title {k}" for k in range(50, 60))}
    assert [item["users"] for item in found] == sorted((item["users"] for item in found), reverse=True)
    one = client.post("/v1/items", {"ids": names(served_model, 3)}).json["items"][0]
    assert one["users"] == int(served_model.fitted.item_counts[3])
    assert one["group"] == "b"


def test_ids_of_other_types_are_text_in_json(ask):
    from fairmf import IALS, Ids, Interactions, synthetic

    data = synthetic(n_users=60, n_items=30, n_interactions=700)
    pairs = [("shop", k) for k in range(30)]
    model = IALS(factors=4, epochs=2).fit(Interactions(data.by_user, 30, None, Ids(pairs)), progress=False)
    answer = ask(model).post("/v1/recommend", {"history": ["('shop', 3)"], "n": 2}).json
    ids, _ = model.recommend_for([("shop", 3)], N=2)
    assert answer["ids"] == [str(name) for name in ids]


def test_fairness_is_for_experts(ask):
    model = small_model(fairness=1.0)
    history = names(model, 3, 4)
    answer = ask(model).post("/v1/recommend", {"history": history, "fairness": 3.0, "n": 6}).json
    assert answer["ids"] == expected(model, items=history, fairness=3.0, N=6).ids.tolist()
    assert answer["evenness"] is None


def test_the_model_is_described(ask, served_model):
    told = ask().get("/v1/model").json
    assert (told["items"], told["users"], told["factors"], told["kind"]) == (60, served_model.n_users, 8, "FairALS")
    assert told["path"] == []


def test_a_model_without_histories_says_what_it_cannot_do(ask, served_model, tmp_path):
    served_model.save(tmp_path / "m.fairmf", interactions=False)
    client = ask(tmp_path / "m.fairmf")
    user = int(served_model.fitted.user_ids.values[5])
    refused = client.post("/v1/recommend", {"user": user})
    assert refused.status == 422
    assert "histories" in refused.json["detail"]
    assert client.post("/v1/recommend", {"user": user, "filter_liked": False}).status == 200


def test_popularity_is_served_and_rerankers_are_refused(ask, served_model):
    data = synthetic(n_users=80, n_items=40, n_interactions=1200)
    client = ask(Popularity().fit(data))
    found = client.post("/v1/recommend", {"history": [str(data.item_ids.values[0])], "n": 3})
    assert found.status == 200
    assert len(found.json["ids"]) == 3
    assert client.post("/v1/score", {"history": [str(data.item_ids.values[0])], "items": ["?"]}).status == 422
    with pytest.raises(InvalidData, match="FairRecRanker cannot be served"):
        app(served_model.with_fairrec(0.5))
