"""The probe at start-up, from every parameter server. (tensorflow#38514, #6326)"""

from tests.support.jobs import run_job


def test_a_path_that_is_not_the_same_directory_everywhere(tmp_path):
    found = run_job("tests.support.cluster_jobs", "directory_that_one_ps_sees_elsewhere", 280,
                    {"CHECKPOINTS": str(tmp_path), "ORACLE": str(tmp_path)})
    elsewhere, nowhere, fine = found["errors"]
    assert elsewhere.startswith("StoreUnavailableError: ps 1 ") and "Received: no /proc/self/cwd/here/data/probe-" in elsewhere
    assert nowhere.startswith("StoreUnavailableError: the start-up probe")
    assert fine == "" and found["left"] == []
    # A whole checkpoint is not damaged because one ps doesn't see it, and no older one is taken.
    assert found["restore"].startswith("StoreUnavailableError: ") and "could not read checkpoint" in found["restore"], found
    assert "ps 1 (/job:ps/replica:0/task:1/" in found["restore"] and "The coordinator sees that file" in found["restore"]
