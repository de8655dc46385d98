"""A standing question: asked at every n-th new image of its camera, but never twice at a time."""

from __future__ import annotations

from auras_ros.nodes.vlm.question import StandingQuestion


class Standing:
    """`due` and `asks` are called in the executor's thread, `ended` in any. skipped: images that were its turn while
    the previous answer was still to come."""

    def __init__(self, given: StandingQuestion) -> None:
        self.name, self.question, self._every = given.name, given.question, given.every_frames
        self.frames = self.asked = self.skipped = 0
        self._busy = False

    def due(self) -> bool:
        """One more image came. Returns whether to ask about it now."""
        self.frames += 1
        if self.frames % self._every:
            return False
        self.skipped += self._busy
        return not self._busy

    def asks(self) -> str:
        """It is asked now. Returns the question's id."""
        self._busy = True
        self.asked += 1
        return f"{self.name}/{self.asked}"

    def ended(self) -> None:
        """It is answered."""
        self._busy = False
