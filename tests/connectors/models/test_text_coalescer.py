from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.models.text_coalescer import MIN_CHARACTERS, TextCoalescer


def shown(*pieces: str) -> list[str]:
    joining = TextCoalescer()
    return [joining.add(piece) for piece in pieces] + [joining.flush()]


def test_the_first_piece_goes_out_as_it_comes() -> None:
    assert shown("H", "e", "l") == ["H", "", "", "el"]


def test_pieces_are_joined_until_there_are_64_characters() -> None:
    assert shown("H", "e" * 63, "l", "o") == ["H", "", "e" * 63 + "l", "", "o"]


def test_a_line_end_sends_what_there_is() -> None:
    assert shown("H", "ello\n", "x") == ["H", "ello\n", "", "x"]


def test_an_empty_first_piece_begins_nothing() -> None:
    assert shown("", "H", "i") == ["", "H", "", "i"]


@given(st.lists(st.text(max_size=90)))
def test_joined_it_is_the_same_text_and_only_the_first_and_the_last_are_short(pieces: list[str]) -> None:
    out = [piece for piece in shown(*pieces) if piece]
    assert "".join(out) == "".join(pieces)
    assert all(len(piece) >= MIN_CHARACTERS or "\n" in piece for piece in out[1:-1])
