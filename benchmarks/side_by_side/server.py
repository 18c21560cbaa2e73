"""A worker or parameter server of a benchmark: `tfadaptcp.server` with the capped store; stock TFRA if so told."""

import os

LIBRARY, STOCK = "ADAPTCP_BENCH_LIBRARY", "ADAPTCP_BENCH_STOCK"


def main() -> None:
    if os.environ.get(STOCK):
        from benchmarks.side_by_side import stock
        stock.leave_tfra_alone()
    from benchmarks.side_by_side.capped import build
    build.load(os.environ[LIBRARY])
    from tfadaptcp import server
    server.run()


if __name__ == "__main__":
    main()
