"""What an examination counts as content of a subject."""

from loomlog.services.application.admin.erasure import CONTENT_FRAMES, _frame_texts
from tests.projections.frames.test_frames import shown, use, with_uses


def test_the_previews_of_messages_are_content() -> None:
    published, delivered, _ = shown(with_uses(use("publish", 1), use("delivery", 2)))
    for frame in (published, delivered):
        assert frame.type in CONTENT_FRAMES
        assert '"hello"' in _frame_texts(frame.event, [])
