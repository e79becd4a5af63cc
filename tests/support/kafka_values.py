"""Values of a Kafka message, in the shape of the reference decoder."""

from tests.reference import kafka_protocol as reference


def read_values(data, levels, outermost, number=0, path=()):
    """Return a row and the rows in its arrays as the strategies do: {field: value}.

    outermost: the name of the message's format. path: the names of the arrays around the row.
    Fields that the message does not have are included, with their defaults.
    """
    level = reference.name_format(outermost, path) if path else outermost
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
            inner_path = (*path, field)
            inner_level = reference.name_format(outermost, inner_path)
            children = [
                i
                for i, child in enumerate(levels[inner_level])
                if child["parent"] == number and is_in_array(child, row, field)
            ]
            assert len(children) == row[f"{field}_count"]
            values[field] = [read_values(data, levels, outermost, i, inner_path) for i in children]
        else:
            at = row["start"] + row[f"{field}_at"]
            values[field] = bytes(data[at : at + value])
    return values


def is_in_array(child, row, field):
    position = child["start"] - row["start"] - row[f"{field}_at"]
    return 0 <= position < max(row[f"{field}_size"], 1)
