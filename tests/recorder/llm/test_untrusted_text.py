"""One JSON document on one line that shows all it holds."""

import json

from hypothesis import given
from hypothesis import strategies as st

from recorder.llm.untrusted_text import fence_json
from tests.judge.llm.hostile import HOSTILE


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | HOSTILE, lambda x: st.lists(x) | st.dictionaries(HOSTILE, x)
    )
)
def test_json_line_holds_the_value_on_one_printable_line(value: object) -> None:
    line = fence_json(value)
    assert json.loads(line) == value
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert "<<<" not in line
    assert ">>>" not in line


def test_other_scripts_stay_readable() -> None:
    assert fence_json({"a": "订单 Größe سلام"}) == '{"a":"订单 Größe سلام"}'


def test_marks_that_nobody_sees_are_escaped() -> None:
    assert fence_json("fine\ufe0f \U000e0154\u3164\u2800") == '"fine\\ufe0f \\udb40\\udd54\\u3164\\u2800"'
