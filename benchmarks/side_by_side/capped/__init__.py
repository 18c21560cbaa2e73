"""A store whose bandwidth is capped, for benchmarks: `capped:///path`."""
