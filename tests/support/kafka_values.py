"""Values of a Kafka message, in the shape of the reference decoder."""

from tests.reference import kafka_protocol as reference


def read_values(data, levels, level, number=0, top=None):
    """Return a row and the rows in its arrays as the strategies do: {field: value}.

    Fields that the message does not have are included, with their defaults.
    """
    top = top or level
    row = levels[level][number]
    values = {}
    for name, value in row.items():
        if name in reference.HEAD or name.endswith(("_at", "_count")):
            continue
        field, is_place, _ = name.partition("_size")
        if not is_place:
            values[name] = value
        elif value < 0:
            values[field] = None
        elif f"{field}_count" in row:
            inner_level = f"{top}.{field}"
            children = [
                i
                for i, child in enumerate(levels[inner_level])
                if child["parent"] == number and is_in_array(child, row, field)
            ]
            assert len(children) == row[f"{field}_count"]
            values[field] = [read_values(data, levels, inner_level, i, top) for i in children]
        else:
            at = row["start"] + row[f"{field}_at"]
            values[field] = bytes(data[at : at + value])
    return values


def is_in_array(child, row, field):
    position = child["start"] - row["start"] - row[f"{field}_at"]
    return 0 <= position < max(row[f"{field}_size"], 1)
