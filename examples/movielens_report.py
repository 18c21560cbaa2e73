"""The table at the end of `movielens_ps.py`, and its verdict."""

from __future__ import annotations

_COLUMNS = "{:<36}{:>6}{:>8}{:>9}{:>9}{:>9}{:>8}{:>8}{:>9}{:>9}{:>9}"


def show(first: dict, second: dict, policy: str = "adaptive") -> int:
    """Prints what both jobs tell; returns the exit code: 0 if all that was expected of the policy is there."""
    checkpoints = first["checkpoints"] + second["checkpoints"]
    losses = {**first["losses"], **second["losses"]}
    print(_COLUMNS.format("checkpoint", "step", "loss", "base", "incr.", "diff.", "cold", "hot", "by", "by", "by"))
    print(_COLUMNS.format("", "", "", "kB", "kB", "kB", "rows", "rows", "drain", "lookup", "update"))
    for item in checkpoints:
        if item in second["checkpoints"][:1]:
            print("-- restored with 3 parameter servers --")
        rows, size = item["rows"], {kind: round(count / 1000) for kind, count in item["bytes"].items()}
        print(_COLUMNS.format(
            item["name"], item["step"], f"{losses[str(item['step'])]:.3f}",
            *(size.get(kind, "-") for kind in ("base", "increment", "differential")),
            rows.get("base", 0) + rows.get("increment", 0), rows.get("differential", 0), item["rows_by_drain"],
            item["rows_by_lookup"], item["rows_by_update"]))
    total = {key: sum(item[key] for item in checkpoints)
             for key in ("rows_by_drain", "rows_by_lookup", "rows_by_update", "update_wait_seconds", "drain_wait_seconds",
                         "blocked_seconds", "save_seconds")}
    waited = first["drain_wait"] + second["drain_wait"] + total["drain_wait_seconds"]
    still = total["blocked_seconds"] - total["drain_wait_seconds"]
    print(f"\npolicy {policy}: saving took {total['save_seconds']:.2f} s; training stood still for {still:.2f} s, and waited "
          f"{total['update_wait_seconds']:.3f} s in updates.\nThe coordinator waited {waited:.2f} s for steps "
          "that were scheduled before the cuts; workers are busy with them meanwhile, and idle only at the very end")
    print(f"restored {second['rows']} rows of {second['tables']} tables and {second['dense']} dense variables, "
          f"{second['bytes_read'] / 1e6:.1f} MB, in {second['restore_seconds']:.2f} s")
    before, after = list(first["losses"].values()), list(second["losses"].values())
    print(f"loss per rating: {before[0]:.3f} at first, {before[-1]:.3f} before the kill, {after[0]:.3f} after the "
          f"restore, {after[-1]:.3f} at last\n")

    checks = [
        ("the parameter server's death ended the first job", first.get("failed", False)),
        (f"the restored model equals the copy of step {second['step']}, bit for bit", not second["differences"]),
        ("no checkpoint that was durable was lost",
         bool(first["checkpoints"]) and second["step"] >= first["checkpoints"][-1]["step"])]
    of_adaptive = [
        ("there are increments, of cold rows", any(item["rows"].get("increment") for item in checkpoints)),
        ("there are differentials, of hot rows", any(item["rows"].get("differential") for item in checkpoints)),
        ("rows were captured in the background", total["rows_by_drain"] > 0),
        ("rows were captured by lookups or updates", total["rows_by_lookup"] + total["rows_by_update"] > 0)]
    checks += of_adaptive if policy == "adaptive" else []
    for text, holds in checks:
        print(f"{'yes' if holds else 'NO ':<5}{text}")
    for line in second["differences"]:
        print(f"     {line}")
    return 0 if all(holds for _, holds in checks) else 1
