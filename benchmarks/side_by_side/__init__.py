"""All systems side by side: the same job on a real cluster, a capped store, and a store of results that grows."""
