"""All systems side by side: the same job on a real cluster, a store that is capped, and a store of results that grows."""
