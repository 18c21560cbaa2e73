"""Where a model is among the checkpoints: which head it goes on from, and which ones hold what it was before."""

from typing import Dict, Optional, Tuple

from tfadaptcp.checkpoint.manifest import Manifest


class Lineage:
    """That of one engine. Changed by one thread at a time: there is one checkpoint or restore at a time.

    Attributes:
        last_sequence: the highest that a cut of the engine's trackers has used, or a restore put there.
        was_restored: whether the head that the model came from was restored, and not just committed.
        chain: changes whenever the trackers stop going on from where they were.
    """

    def __init__(self):
        self.last_sequence = 0
        self.was_restored = False
        self.chain = 0
        self._position: Optional[Tuple[str, Manifest]] = None
        self._came_from: Optional[Tuple[str, Manifest]] = None
        self._newest: Dict[str, str] = {}

    def position_in(self, directory: str) -> Optional[Manifest]:
        """The head of `directory` that the trackers go on from: what they call saved is in it. None: there is none."""
        return _head_in(directory, self._position)

    def came_from(self, directory: str) -> Optional[Manifest]:
        """The head of `directory` that the model goes on from, though trackers made since know of none."""
        return _head_in(directory, self._came_from)

    def newest_in(self, directory: str) -> Optional[str]:
        """The name of the newest head of `directory` that holds the model as it is, or was since it was last restored: the
        parent of the next one, be it that a complete one goes on from nothing of it."""
        return self._newest.get(directory)

    @property
    def has_come_from(self) -> bool:
        """Whether the model goes on from a head."""
        return self._came_from is not None

    def follow(self, older: "Lineage") -> None:
        """Takes over what the engine before tells about where the model came from, not what its trackers knew."""
        self._came_from, self.was_restored = older._came_from, older.was_restored
        self._newest, self.last_sequence = dict(older._newest), older.last_sequence

    def move_to(self, directory: str, head: Optional[Manifest]) -> None:
        """Records the head that was just committed or restored; None: the model goes on from no head."""
        self._position = self._came_from = None if head is None else (directory, head)
        self.was_restored = False
        if head is None:
            self.chain += 1
            self._newest = {}
        else:
            self.last_sequence = max(self.last_sequence, head.sequence)
            self._newest[directory] = head.name

    def published_again(self, directory: str, head: Manifest) -> None:
        """Records the new name of the head that the model goes on from."""
        knows = self._position is not None
        self.move_to(directory, head)
        if not knows:
            self._position = None


def _head_in(directory: str, place: Optional[Tuple[str, Manifest]]) -> Optional[Manifest]:
    return place[1] if place is not None and place[0] == directory else None
