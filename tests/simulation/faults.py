"""What goes wrong, and when: drawn from the seed before and while it happens, each fault under a name of its own.

Two kinds. *Acts* are planned before the run: a crash, a pause, a rebalance at a time. *Fates* meet single calls of a
process to the outside: the append number 17 of owner-a.1 loses its acknowledgement.

Every process draws from a stream of its own, and always the same number of values for a call, so that leaving one fault
out (`without`) changes as little as possible of the rest. That is what lets shrink.py find the few that matter.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

CALM_S = 3.0
"""Virtual seconds until faults stop; after that everything must come to its end."""
RATES = (0.0, 0.02, 0.05, 0.1)
"""Shares of calls to the outside that meet a fate; one is drawn for each seed."""
APPEND_FATES = ("lost", "ack lost", "late", "gap", "slow", "crash", "pause")
READ_FATES = ("unavailable", "slow", "crash", "pause")
TABLE_FATES = ("connection lost", "slow", "crash", "pause")
COMMIT_FATES = ("connection lost", "commit lost", "slow", "crash", "pause")
FATES = {
    "append": (2.0, APPEND_FATES),
    "read": (1.0, READ_FATES),
    "poll": (0.2, READ_FATES),
    "tables": (0.5, TABLE_FATES),
    "commit": (1.0, COMMIT_FATES),
}
"""What may happen to a call of each kind, and how often compared with the others: few appends matter more than many
polls of nothing."""
ACTS = (
    *("crash", "crash", "pause", "pause", "rebalance", "storm", "two owners", "checkpoint", "checkpoint", "junk"),
    *("planned stop", "crash projector", "pause projector", "second projector", "rebuild", "poison", "damage"),
    *("false alarm", "false alarm"),
)
MOST_ACTS = 10
MOST_FUSE = 40
"""Callbacks until a planned crash or pause: where in the code it strikes."""
MOST_PAUSE_S = 4.0
"""Longer than a session and the longest wait of a call, so that a sleeper is replaced; shorter than Host's STALL_S,
after which it rightly believes that its producer is broken."""
MOST_DELAY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something planned. `place` and `amount` are in [0, 1): which process or partition, how long."""

    name: str
    kind: str
    at_s: float
    place: float
    amount: float
    fuse: int


@dataclass(slots=True)
class Faults:
    """The faults of one seed. `fired` has the names of those that happened; those in `without` do not."""

    seed: int
    without: frozenset[str] = frozenset()
    acts: list[Act] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    rate: float = 0.0
    calm: bool = False

    def __post_init__(self) -> None:
        random = Random(f"{self.seed}/acts")
        self.rate = random.choice(RATES)
        for number in range(random.randint(0, MOST_ACTS)):
            kind = random.choice(ACTS)
            act = Act(
                name=f"act {number} ({kind})",
                kind=kind,
                at_s=random.uniform(0.0, CALM_S),
                place=random.random(),
                amount=random.random(),
                fuse=random.randrange(1, MOST_FUSE),
            )
            if act.name not in self.without:
                self.acts.append(act)

    def fates(self, process: str) -> "Fates":
        return Fates(self, process)


class Fates:
    """The fates of one process's calls to the outside, and how long they take."""

    def __init__(self, faults: Faults, process: str) -> None:
        self.random = Random(f"{faults.seed}/{process}")
        self._faults = faults
        self._process = process
        self._counts: Counter[str] = Counter()

    def draw(self, kind: str) -> tuple[str, float]:
        """What happens to the next call of that kind, nothing as a rule, and an amount in [0, 1)."""
        faults = self._faults
        value = self.random.random()
        weight, among = FATES[kind]
        rate = weight * faults.rate
        if value >= rate or faults.calm:
            return "", value
        fate = among[int(value / rate * len(among))]
        self._counts[kind] += 1
        name = f"{self._process} {kind} {self._counts[kind]} ({fate})"
        if name in faults.without:
            return "", value
        faults.fired.append(name)
        return fate, self.random.random()

    def latency_s(self) -> float:
        """How long one way to the outside takes: mostly short, now and then ten times as long."""
        value = self.random.random()
        return 0.001 + 0.004 * value if value < 0.9 else 0.05 * value
