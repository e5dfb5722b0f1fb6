"""JSON that could surprise a reader is refused."""

import pytest

from fairmf.io import strict_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}', "NaN", "[Infinity]", "-Infinity", "1e999", "[" * 100_000, '{"a":' * 60 + "1" + "}" * 60,
        "9" * 1001, "[" + "0," * strict_json.MAX_VALUES + "0]", "", "{", "nul", '"\x01"',
    ],
    ids=range(13),
)  # fmt: skip
def test_json_that_surprises_is_refused(text):
    with pytest.raises(strict_json.Malformed):
        strict_json.parse(text, "it")
