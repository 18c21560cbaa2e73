"""A real cluster that checkpoints to Google Cloud Storage: the server's own log says what was asked of it."""

from tests.servers.gcs import BUCKET
from tests.support.jobs import run_job


def test_two_parameter_servers(gcs, tmp_path):
    found = run_job("tests.support.gcs_cluster_jobs", "train_and_restore", 280,
                    {**gcs.environment, "CHECKPOINTS": f"gs://{BUCKET}/cluster", "ORACLE": str(tmp_path)})
    assert len(found["wrong"]) == 4 and not any(found["wrong"].values()), found
    assert found["written"] == found["names"] > 20, "no name is written twice"
    assert found["read"][0] == found["read"][1] and found["objects"][0] == found["objects"][1], "each object is read once"
    assert found["uploads_at_once"] >= 2 and found["reads_at_once"] >= 2, found
