"""/openapi.json says what the server does: every route, every limit; requests made from it are answered as it says."""

import json

import pytest

pytest.importorskip("msgspec", reason="needs the extra [serve]")

from fairmf.serve.routes import ROUTES


def references(part):
    if isinstance(part, dict):
        yield from (value for name, value in part.items() if name == "$ref")
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from references(inner)


def test_the_document_names_every_route_and_resolves(ask):
    document = ask(name="films", limits={"n": 33, "history": 44, "items": 55, "batch": 6}).get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert found == {(route.method, route.path.replace("{name}", "films")) for route in ROUTES}
    schemas = document["components"]["schemas"]
    assert {name.rpartition("/")[2] for name in references(document)} <= set(schemas)
    fields = schemas["RecommendRequest"]["properties"]
    assert fields["n"]["maximum"] == 33
    assert [part.get("maxItems") for part in fields["history"]["anyOf"]].count(44) == 1
    assert fields["exclude"]["maxItems"] == 55
    assert schemas["RecommendBatch"]["properties"]["requests"]["maxItems"] == 6
    assert "security" not in json.dumps(document)


def test_keys_are_in_the_document(ask):
    document = ask(keys=(b"x" * 32,)).get("/openapi.json").json
    assert document["paths"]["/v1/recommend"]["post"]["security"] == [{"key": []}]
    assert "security" not in document["paths"]["/healthz/live"]["get"]
    assert "401" in document["paths"]["/metrics"]["get"]["responses"]


@pytest.mark.slow
def test_the_server_keeps_its_contract(served_model, tmp_path):
    """Requests that schemathesis makes from the document, valid and not: statuses, types and schemas as documented."""
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install --group contract")
    from hypothesis import HealthCheck, Phase, given, settings
    from running_server import serving

    served_model.save(tmp_path / "m.fairmf")
    checks = schemathesis.checks
    with serving(tmp_path / "m.fairmf", "--events", tmp_path / "events") as server:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
        for operation in schema.get_all_operations():
            for mode in schemathesis.GenerationMode:

                @settings(
                    max_examples=15, deadline=None, database=None, phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )  # fmt: skip
                @given(case=operation.ok().as_strategy(generation_mode=mode))
                def keeps(case):
                    answer = case.call(timeout=10)
                    case.validate_response(answer, checks=[
                        checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
                        checks.response_schema_conformance,
                    ])  # fmt: skip

                if operation.ok().body or mode is schemathesis.GenerationMode.POSITIVE:
                    keeps()
        _, text = server.request("GET", "/metrics")
        counted = [line for line in text.splitlines() if line.startswith('fairmf_requests_total{route="/v1/')]
        assert sum(float(line.rpartition(" ")[2]) for line in counted) > 100  # it did ask
        assert any('status="200"' in line for line in counted)
        assert any('status="422"' in line for line in counted)
