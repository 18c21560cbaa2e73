"""MovieLens-100k as a stream: the ratings in the order of time, as numbers that workers read by themselves."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import tensorflow as tf

COLUMNS = ("user", "item", "age", "gender", "occupation", "genres", "hour", "rating")
GENRES = 19
OCCUPATIONS = 21
USER_FEATURES = 4 + OCCUPATIONS
CROSSES = 10


def write_stream(source: Path, target: Path) -> None:
    """Joins ratings, users and movies and writes one line of integers per rating, oldest first.

    Args:
        source: the folder with ml-100k.inter, .user and .item.
        target: the CSV file to write, without a header. Genres are the bits of one number.
    """
    users, occupations = {}, {}
    for user, age, gender, occupation, _ in _rows(source / "ml-100k.user"):
        users[user] = age, int(gender == "M"), occupations.setdefault(occupation, len(occupations))
    movies, genres = {}, {}
    for item, _, _, names in _rows(source / "ml-100k.item"):
        movies[item] = sum(1 << genres.setdefault(name, len(genres)) for name in set(names.split()))
    if len(occupations) != OCCUPATIONS or len(genres) != GENRES:
        raise ValueError(f"{source} is not MovieLens-100k. Received: {len(occupations)} occupations, {len(genres)} genres. "
                         f"Expected: {OCCUPATIONS} and {GENRES}")
    ratings = sorted(_rows(source / "ml-100k.inter"), key=lambda row: float(row[3]))
    with open(target, "w", newline="", encoding="ascii") as file:
        writer = csv.writer(file)
        for user, item, rating, seconds in ratings:
            hour = time.gmtime(float(seconds)).tm_hour
            writer.writerow((user, item, *users[user], movies[item], hour, int(float(rating))))


def _rows(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file][1:]


def stream(path: str, batch_size: int, first_batch: int, num_workers: int) -> tf.data.Dataset:
    """Returns the batches of one worker, to be called for each by `DatasetCreator`.

    TensorFlow ops alone: the pipeline runs on a worker that has no access to the coordinator's Python. The workers take
    turns with the batches; one that is through with its share before the others begins it again.

    Args:
        path: what `write_stream` wrote.
        batch_size: ratings per batch.
        first_batch: batches to leave out, those that were trained on before.
        num_workers: workers of the cluster.
    """
    # `InputContext` says "pipeline 0 of 1" on every worker of a ParameterServerStrategy.
    worker = tf.distribute.coordinator.experimental_get_current_worker_index()
    lines = tf.data.TextLineDataset(path).batch(batch_size, drop_remainder=True)
    return lines.skip(first_batch).shard(num_workers, worker).repeat().map(_features).prefetch(4)


def _features(lines: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Parses a batch of lines: ({name: ids [batch, n] int64 or floats [batch, n]}, ratings [batch, 1])."""
    columns = dict(zip(COLUMNS, tf.io.decode_csv(lines, [tf.constant([], tf.int64)] * len(COLUMNS))))
    bits = tf.bitwise.right_shift(columns["genres"][:, None], tf.range(GENRES, dtype=tf.int64))
    genres = tf.bitwise.bitwise_and(bits, tf.constant(1, tf.int64))
    first_genre = tf.argmax(genres, axis=1)
    angle = tf.cast(columns["hour"], tf.float32) * (2 * 3.14159265 / 24)
    user = tf.concat([
        tf.stack([tf.cast(columns["age"], tf.float32) / 50, tf.cast(columns["gender"], tf.float32),
                  tf.sin(angle), tf.cos(angle)], axis=1),
        tf.one_hot(columns["occupation"], OCCUPATIONS)], axis=1)
    user_id, item = columns["user"], columns["item"]
    age, hour = columns["age"] // 5, columns["hour"]
    person = columns["occupation"] * 2 + columns["gender"]
    pairs = [(user_id, item), (user_id, first_genre), (user_id, hour), (user_id * 32 + hour, first_genre),
             (item, columns["occupation"]), (item, columns["gender"]), (item, age), (item, hour), (item, person),
             (item * 32 + age, person)]
    # Dynamic tables take any 64-bit key: no hashing to buckets, so no two crosses share a row.
    crosses = tf.stack([kind * 2**40 + left * 2**16 + right for kind, (left, right) in enumerate(pairs)], axis=1)
    features = {"user": user_id[:, None], "item": item[:, None], "crosses": crosses,
                "user_features": user, "item_features": tf.cast(genres, tf.float32)}
    return features, tf.cast(columns["rating"][:, None], tf.float32)
