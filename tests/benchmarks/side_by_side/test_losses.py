"""Statistics of the report, against values computed by hand."""

import random
import statistics

import pytest

from benchmarks.side_by_side import job, longer, losses, training, windows, zipf
from benchmarks.side_by_side.cells import Cell


def results(**speeds):
    return [{"cell": vars(Cell(system, round=number)), "steps_per_second": speed}
            for system, rounds in speeds.items() for number, speed in rounds.items()]


def test_systems_are_compared_within_their_rounds():
    found = losses.throughput(results(none={0: 40, 1: 20, 2: 10}, adaptcp={0: 36, 1: 19, 2: 8, 3: 99}))
    figures = found[Cell("any")]["adaptcp"]
    assert (figures["median"], figures["least"], figures["greatest"], figures["rounds"]) == (0.9, 0.8, 0.95, 3)
    lost = losses.loss(figures)
    assert lost["median"] == pytest.approx(0.1) and lost["least"] == pytest.approx(0.05)
    assert lost["greatest"] == pytest.approx(0.2)
    # Of 0.9, 0.95 and 0.8: a mean of 0.8833, a deviation of 0.0764, and t = 4.303.
    assert lost["interval"] == pytest.approx((1 - 0.8833 - 0.1897, 1 - 0.8833 + 0.1897), abs=1e-4)


def test_a_round_is_compared_with_the_mean_of_both_jobs_without_checkpoints():
    found = results(none={0: 40, 1: 40}, none_again={0: 60}, adaptcp={0: 25, 1: 20})
    assert losses.throughput(found)[Cell("any")]["adaptcp"]["median"] == 0.5
    again = losses.throughput(found, losses.NONE[:1])[Cell("any")]["none_again"]
    assert (again["median"], again["rounds"]) == (1.5, 1)


def test_conditions_are_kept_apart():
    found = results(none={0: 40}, adaptcp={0: 20})
    other = [{"cell": vars(Cell(system, interval=300)), "steps_per_second": speed}
             for system, speed in (("none", 50), ("adaptcp", 45))]
    compared = losses.throughput(found + other)
    assert compared[Cell("any")]["adaptcp"]["median"] == 0.5
    assert compared[Cell("any", interval=300)]["adaptcp"]["median"] == 0.9


def test_the_interval_is_that_of_the_mean_by_students_t():
    assert losses.interval([1.0, 2.0]) is None
    # Mean 3, deviation 1.5811, of 5: 2.776 * 1.5811 / sqrt(5).
    assert losses.interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3 - 1.9629, 3 + 1.9629), abs=1e-4)
    many = [1.0, 2.0] * 10
    aside = losses.STUDENT[10] * statistics.stdev(many) / 20 ** 0.5
    assert losses.interval(many) == pytest.approx((1.5 - aside, 1.5 + aside))


def test_the_means_of_normal_rounds_are_in_it_as_often_as_it_says():
    draws = random.Random(1)
    for rounds in (3, 5, 10):
        inside = 0
        for _ in range(4000):
            low, high = losses.interval([draws.gauss(0.0, 1.0) for _ in range(rounds)])
            inside += low <= 0 <= high
        assert inside / 4000 == pytest.approx(0.95, abs=0.015)


def test_windows_are_summed_and_not_averaged():
    found = [{"steps": 100, "seconds": 2.0, "save_seconds": 0.0}, {"steps": 100, "seconds": 8.0, "save_seconds": 6.0}]
    assert windows.steps_per_second(found) == 20
    assert windows.steps_per_second(windows.slowed(found, 5)) == 10
    assert [window["save_seconds"] for window in windows.slowed(found, 5)] == [5.0, 11.0]


def test_windows_last_as_long_as_they_have_to():
    now = [0.0]

    def train(steps):
        now[0] += steps / 10

    def save():
        now[0] += 5

    found = windows.run(train, save, 100, 40, 2, clock=lambda: now[0])
    assert found == [{"steps": 100, "seconds": 15.0, "save_seconds": 5.0}] * 3
    assert len(windows.run(train, save, 100, 0, 2, clock=lambda: now[0])) == 2
    more = iter([True, True, False])
    assert len(windows.run(train, save, 100, 0, 2, lambda: next(more), clock=lambda: now[0])) == 4


def test_step_times_are_those_between_ends_on_a_worker():
    stamps = [(0.0, 10.0, 10.1), (1.0, 10.0, 10.3), (0.0, 10.1, 10.2), (0.0, 10.4, 10.5), (1.0, 10.3, 10.7)]
    times = windows.step_times(stamps)
    assert times["p50"] == pytest.approx(300) and times["max"] == pytest.approx(400)  # of 100, 300, 400
    assert times["running_p50"] == pytest.approx(100) and times["running_max"] == pytest.approx(400)
    assert windows.step_times([]) == {}


def test_the_line_takes_what_its_narrowest_part_takes():
    assert windows.seconds_on_the_line(100, 150, (10, 0)) == 10
    assert windows.seconds_on_the_line(100, 1500, (10, 100)) == 15
    assert windows.seconds_on_the_line(100, 1500, (0, 0)) == 0


def test_a_thousandth_of_the_keys_takes_nine_tenths_of_the_accesses():
    keys = 200_000
    drawn = zipf.draw([400_000], 7, keys).numpy()
    hot = {zipf.key_of(rank, keys) for rank in range(keys // 1000)}
    assert sum(key in hot for key in drawn.tolist()) / len(drawn) == pytest.approx(0.9, abs=0.01)
    assert drawn.min() >= 0 and drawn.max() < keys
    assert len({zipf.key_of(rank, keys) for rank in range(keys)}) == keys


def test_how_many_keys_a_number_of_accesses_meets():
    keys = 20_000
    for accesses in (5000, 50_000):
        met = [len(set(zipf.draw([accesses], seed, keys).numpy().tolist())) for seed in range(40)]
        assert statistics.fmean(met) == pytest.approx(zipf.distinct(accesses, keys), rel=0.02)


def test_throughput_at_other_intervals():
    # Everything each time, standing still: a tenth of the throughput is nine intervals lost, whatever the interval.
    assert longer.relative("tfra_files", 100, 0.1, 900) == pytest.approx(0.5)
    assert longer.relative("tfra_files", 100, 0.1, 100) == pytest.approx(0.1)
    # Rows updated in the time that a checkpoint covers cost alike.
    rows = 20_000

    def lost(covered):
        return zipf.distinct(covered * job.BATCH * job.CATEGORIES, 2 * rows)

    for system, age in (("native_incremental", 1), ("check_n_run", training.MIDDLE_AGE), ("adaptcp", 1)):
        expected = 30 / (30 + 10 * lost(30 * age) / lost(10 * age))
        assert longer.relative(system, 10, 0.5, 30, rows) == pytest.approx(expected)
