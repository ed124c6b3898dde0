"""What a program makes, put between two marks of a page that people write."""

from __future__ import annotations

import pytest

from scripts.pages.marks import Marks

MARKS = Marks("make map")
PAGE = f"# House\n\n{MARKS.begin}\n\nold\n\n{MARKS.end}\n\nMore.\n"


def test_what_stood_between_the_marks_is_replaced_and_the_rest_stays() -> None:
    made = MARKS.put(PAGE, "\n| new |\n")
    assert made == PAGE.replace("old", "| new |")
    assert MARKS.put(made, "| new |") == made


def test_other_marks_of_the_page_are_left_alone() -> None:
    other = Marks("make other")
    page = f"{other.begin}\n\nother\n\n{other.end}\n{PAGE}"
    assert MARKS.put(page, "new") == page.replace("old", "new")


@pytest.mark.parametrize("lacks", [MARKS.begin, MARKS.end])
def test_a_page_without_its_marks_is_refused(lacks: str) -> None:
    with pytest.raises(ValueError, match="has no marks for the output of `make map`"):
        MARKS.put(PAGE.replace(lacks, ""), "new")
