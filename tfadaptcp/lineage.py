"""Where a model is among the checkpoints: which heads it goes on from, and which ones hold what it was before."""

from typing import Dict, Optional, Set, Tuple

from tfadaptcp.checkpoint.manifest import Manifest


class Lineage:
    """That of one engine. Changed by one thread at a time: there is one checkpoint or restore at a time.

    Attributes:
        last_sequence: the highest that a cut of the engine's trackers has used, or a restore put there.
        chain: changes whenever the trackers stop going on from where they were.
    """

    def __init__(self):
        self.last_sequence = 0
        self.chain = 0
        self._position: Optional[Tuple[str, Manifest]] = None
        self._came_from: Dict[str, Manifest] = {}
        self._restored: Set[str] = set()
        self._newest: Dict[str, str] = {}

    def position_in(self, directory: str) -> Optional[Manifest]:
        """The head of `directory` that the trackers go on from: what they call saved is in it. None: there is none."""
        return self._position[1] if self._position is not None and self._position[0] == directory else None

    def came_from(self, directory: str) -> Optional[Manifest]:
        """The head of `directory` that the model goes on from, though trackers made since know of none, or of one elsewhere."""
        return self._came_from.get(directory)

    def was_restored_in(self, directory: str) -> bool:
        """Whether that head was restored, and not published again since: there may be newer ones, of what was rolled back."""
        return directory in self._restored

    def newest_in(self, directory: str) -> Optional[str]:
        """The name of the newest head of `directory` that holds the model as it is, or was since it was last restored: the
        parent of the next one, be it that a complete one goes on from nothing of it."""
        return self._newest.get(directory)

    @property
    def has_come_from(self) -> bool:
        """Whether the model goes on from a head."""
        return bool(self._came_from)

    def follow(self, older: "Lineage") -> None:
        """Takes over what the engine before tells about where the model came from, not what its trackers knew."""
        self._came_from, self._restored = dict(older._came_from), set(older._restored)
        self._newest, self.last_sequence = dict(older._newest), older.last_sequence

    def move_to(self, directory: str, head: Optional[Manifest]) -> None:
        """Records the head that was just committed; None: the model goes on from no head, in whatever directory."""
        if head is None:
            self.chain += 1
            self._position = None
            self._came_from, self._newest = {}, {}
            self._restored = set()
        else:
            self._position = (directory, head)
            self._go_on_from(directory, head)

    def forget(self, directory: str) -> None:
        """Records that nothing of a directory is there any more: the model goes on from no head of it."""
        if self.position_in(directory) is not None:
            self._position = None
            self.chain += 1
        for heads in (self._came_from, self._newest):
            heads.pop(directory, None)
        self._restored.discard(directory)

    def restored(self, directory: str, head: Manifest) -> None:
        """Records the head that was just restored."""
        self.move_to(directory, head)
        self._restored.add(directory)

    def published_again(self, directory: str, head: Manifest) -> None:
        """Records the new name of the head of a directory that the model goes on from."""
        if self.position_in(directory) is not None:
            self._position = (directory, head)
        self._go_on_from(directory, head)

    def _go_on_from(self, directory: str, head: Manifest) -> None:
        self._came_from[directory] = head
        self._restored.discard(directory)
        self.last_sequence = max(self.last_sequence, head.sequence)
        self._newest[directory] = head.name
