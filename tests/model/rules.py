"""The rules of tracker, checkpoints and restore, each with a way to break it.

The model obeys all of them. Given the name of a breakage it breaks that one, which random sequences must notice: a rule
whose breakage nobody notices is either superfluous or not tested.
"""

from __future__ import annotations

BREAKAGES = {
    # Capture.
    "captures after the write": "an update captures the row when it has written it already",
    "captures new rows": "a row made after the cut is captured for it",
    "claims for any cut": "a row read for one cut is published for the next one",
    "class at commit": "hot or cold is looked up again at commit, not remembered from the capture",
    "hot tombstones": "a removed row can be hot, as others can",
    "mark is boolean": "the mark of a capture doesn't say for which checkpoint it was",
    "only this interval": "the differential holds only hot rows written since the last cut",
    # Writes and removals.
    "stamps the old interval": "writes after the cut count as before it until the checkpoint is committed",
    "removal captures nothing": "a removal doesn't capture the old row",
    "elides tombstones": "a row that was never saved cold is forgotten when it is removed",
    "elides uncaptured tombstones": "the same, unless the pending checkpoint has captured it",
    "deleted flag": "one flag per key: set by any removal, cleared by any write, whichever tables they concern",
    "clear captures nothing": "clearing a table doesn't capture the rows that the pending checkpoint needs",
    "clear is not noticed": "clearing a table neither marks its rows nor makes the next checkpoint complete",
    "forgets rows made before": "rows that were there before they were tracked don't count as unsaved",
    "evicts clean entries": "the index forgets rows that are saved",
    # Outcomes.
    "saved now": "a commit marks rows as saved at the present sequence, not at that of the checkpoint",
    "drops rewritten tombstones": "the entry of a saved tombstone goes though the key was written after the cut",
    "failure forgets rows": "a failed checkpoint doesn't put its rows back on the unsaved list",
    "hot rows are forgotten": "a committed checkpoint doesn't put its hot rows back on the unsaved list",
    "told before durable": "shards are told of a commit before the manifest is durable, which then fails",
    "untold means committed": "a shard that missed the outcome takes the checkpoint for committed",
    "cuts over unresolved": "a shard that missed the outcome forgets what was pending at the next cut",
    # Bases made in the background.
    "early scan": "a scanned base serves a head that was cut before its scan ended",
    "scan cleans to the head": "a scanned base cleans rows up to its head's cut, not up to where the scan began",
    "scan drops increments": "a scanned base replaces increments up to its head's cut, not up to where it began",
    # Retention.
    "deletes old differentials": "the differential goes with the next checkpoint though its head is kept",
    "keeps the newest chain only": "objects go that the newest head doesn't need, whatever older ones do",
    "deletes the unknown": "the data of a checkpoint that may or may not exist is deleted",
    # Restore.
    "restores onto old rows": "tables aren't cleared before rows are restored into them",
    "restored hot rows are clean": "rows restored from the differential count as saved",
    "tombstones aren't seen": "an older row comes back for a key that a newer level says was removed",
    "goes on from the newest": "the chain goes on from the newest head, not from the one that was restored",
    "not published again": "the restored head isn't published again, so that the abandoned ones stay newer",
}
