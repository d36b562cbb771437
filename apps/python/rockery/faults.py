"""Faults that programs meet on purpose: `rockery run --fault`."""

import json
import os


class Faults:
    """Rules of faults, and the journal of those that have happened.

    ::

        faults.add("post_send: fail ENOMEM after 100")
        host.run(program, faults=faults, check=False)
        assert [one["fault"] for one in faults.journal()] == ["fail ENOMEM"]
    """

    def __init__(self, journal):
        #: The path of the journal.
        self.path = os.fspath(journal)
        #: The rules, each a text as in docs/faults.md.
        self.rules = []

    def __repr__(self):
        return f"<rockery faults {'; '.join(self.rules) or 'none'}>"

    def add(self, rule):
        """Adds a rule for programs that are started from now on. The command judges it when one is."""
        self.rules.append(rule)
        return self

    def options(self):
        """Options of ``rockery run``."""
        rules = [word for rule in self.rules or ["none"] for word in ("--fault", rule)]
        return [*rules, "--fault-journal", self.path]

    def journal(self):
        """The faults that have happened since the last program was started, oldest first: a dictionary with
        ``rule``, ``occasion``, ``point``, ``fault`` and others for each."""
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
