"""What a search for slopes writes, compiled: its tape, and a record of how far it has come."""

from __future__ import annotations

from relunorm.compiled.jit import kernel_part

#: Marks on the tape: none, forms and walls, a bound of a unit, no point, a sign that is needed, two
#: halves, a bound that closes, a side that is empty in rational arithmetic, a limit that no bound
#: with further signs exceeds.
NO_MARK, FORMS, REACH, NOTHING, NEED, SPLIT, SHUT, TOUCH, LOW = (float(k) for k in range(9))

# What a run of the search ended with.
DONE, IMPROVED, ASK, FULL, CUT_OFF, CLOSED, ON = range(7)
# Entries of the record: the best slope, what is added to it, the bound of cells that stay open, how
# far the node on top has come, where in that stage, corners added up, unit and side asked about,
# whether a side may be empty, whether regions that floats can enter do not count.
BEST, SLACK, FLOOR, STAGE, RESUME, CORNERS, UNIT, SIDE, DOUBT, LISTED = range(10)
# Stages of a node.
START, REACHING, DEEPER, SPLITTING, LEAF, LEFT = range(6)


@kernel_part
def put(tape, used, value):  # type: ignore[no-untyped-def]
    """Write a number."""
    tape[used[0]] = value
    used[0] += 1


@kernel_part
def put_sign(tape, used, mark, unit, side):  # type: ignore[no-untyped-def]
    """Write a mark, a unit and one of its sides."""
    at = used[0]
    tape[at], tape[at + 1], tape[at + 2] = mark, unit, side
    used[0] = at + 3


@kernel_part
def put_multipliers(nodes, tape, used, count):  # type: ignore[no-untyped-def]
    at = used[0]
    tape[at] = count
    for p in range(count):
        tape[at + 1 + p], tape[at + 1 + count + p] = nodes.picks[p], nodes.weights[p]
    used[0] = at + 1 + 2 * count
