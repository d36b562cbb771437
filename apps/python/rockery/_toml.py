"""Writing TOML: a fabric that is a dictionary becomes a fabric file, whose lines messages can show."""

import json
import math
import re


def _key(name):
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text):
    # JSON's escapes are those of TOML, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def value(item):
    """One value.

    >>> value({"kind": "star", "hosts": 4})
    '{kind = "star", hosts = 4}'
    >>> value([True, 1.5, "a\\nb"])
    '[true, 1.5, "a\\\\nb"]'
    """
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):
        return _text(item)
    if isinstance(item, int):
        return str(item)
    if hasattr(item, "item") and not hasattr(item, "keys"):
        # A number of numpy's.
        return value(item.item())
    if isinstance(item, float):
        if math.isinf(item) or math.isnan(item):
            raise ValueError(f"{item} is no number that a fabric file can have")
        return repr(item)
    if hasattr(item, "keys"):
        return "{" + ", ".join(f"{_key(name)} = {value(item[name])}" for name in item.keys()) + "}"
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(value, item)) + "]"
    raise TypeError(f"a fabric file has no {type(item).__name__}: use texts, numbers, lists and dictionaries")


def document(fields):
    """A whole file: each field on a line of its own, and each entry of a list of tables.

    >>> print(document({"seed": 1, "workload": [{"pattern": "each"}]}), end="")
    seed = 1
    workload = [
      {pattern = "each"},
    ]
    """
    lines = []
    for name in fields.keys():
        item = fields[name]
        if isinstance(item, (list, tuple)) and item and all(hasattr(entry, "keys") for entry in item):
            entries = "".join(f"  {value(entry)},\n" for entry in item)
            lines.append(f"{_key(name)} = [\n{entries}]\n")
        else:
            lines.append(f"{_key(name)} = {value(item)}\n")
    return "".join(lines)
