"""DataFrames of wirescan, and their rows in an order that does not depend on tasks."""


def load_frames(spark, path, **options):
    """Return the DataFrame of the data source `wirescan`."""
    return spark.read.format("wirescan").options(**options).load(path)


def sort_rows(batch):
    """Return the rows of a record batch or table of Arrow as sorted text."""
    return sorted(map(repr, batch.to_pylist()))


def sort_rows_of_frame(frame, schema):
    """Return the rows of a DataFrame, cast to a schema of Arrow, like `sort_rows`."""
    return sort_rows(frame.toArrow().cast(schema))


def write_captures(folder, suffix, make_capture, count=3):
    """Write captures of 100 frames each, and a file that is no capture."""
    for number in range(count):
        (folder / f"{number}.{suffix}").write_bytes(make_capture(100 * number, 100))
    (folder / "notes.txt").write_text("no capture")
