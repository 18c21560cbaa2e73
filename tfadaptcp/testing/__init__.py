"""Help for tests of jobs that use tfadaptcp: real clusters on one machine."""

from tfadaptcp.testing.cluster import ClusterStartError, LocalCluster

__all__ = ["ClusterStartError", "LocalCluster"]
