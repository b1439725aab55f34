"""Branch and bound, compiled: explore the nodes on a stack, depth first, for a number of nodes.

Nodes (`relunorm.bounds.nodes.node`) lie on a stack in one array. `explore` takes the top one,
cuts it in two, bounds both halves and puts back what stays open, until the stack is empty, the
budget is used up, or a point reaches the target. Children fold what has become stable, so nodes get
smaller on the way down: one of thirty open units costs microseconds whatever the network.

What happens is written to a tape, from which a proof is made: cuts and, for every goal group that a
node closes, the numbers its bound was computed with.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.child import ON_INPUT, ON_UNIT
from relunorm.bounds.nodes.kernel import compiled, evaluate, forward, outside, part, row_at
from relunorm.bounds.nodes.node import bound_of, linear, node_size, open_units, parts, tune
from relunorm.bounds.nodes.programme import MOST_VARIABLES, solvable, solve
from relunorm.bounds.nodes.tighten import MOST, STEPS, tighten
from relunorm.search.choice import learn, matters, patience, promise, scores, widest
from relunorm.search.halves import half, middle, move_down, push, splits, straightened, topmost
from relunorm.search.proofs.entries import size as size_of_entry
from relunorm.search.proofs.entries import write
from relunorm.search.proofs.tape import CLOSED, CUT, FOLDED, TIGHTENED

#: Why `explore` came back.
DONE, OUT_OF_NODES, REACHED, FULL, TAPE_FULL, STOPPED = 0, 1, 2, 3, 4, 5

#: A node is tightened when it is this many average cuts away from being closed: sooner where it is
#: too large for its programme, since then decided signs tell through tightened units alone.
FAR, FAR_UNSOLVED = 8.0, 3.0

#: Pivots of the programme of a node, and of a leaf, at most.
PIVOTS, LEAF_PIVOTS = 400, 100_000

#: Trials after which what was learned of a cut is believed, and cuts tried at a node until then:
#: fewer where a node has more entries than LARGE.
RELIABLE, LOOK, LOOK_LARGE, LARGE = 4.0, 6, 0, 1e6


@part
def _offer(whole, ball, first, last, x, y, best, best_x):  # type: ignore[no-untyped-def]
    """Value of a goal group at x by the form of the whole domain; keeps the best."""
    M, c, n, known, near = whole.rows, whole.const, whole.units, whole.known, whole.near
    d = len(x)
    evaluate(x, M, c, n, y, whole.jump, whole.at_zero)
    value = np.inf
    for g in range(first, last):
        t = n + known + g
        value = min(value, row_at(M[t], c[t], x, y, n))
    if value > best[0]:
        for r in range(known):
            if row_at(M[n + r], c[n + r], x, y, n) < -near[r]:
                return  # outside the polytope
        if len(ball) > 0 and outside(x, ball) > 1e-12 * ball[-2] * (1.0 + ball[-2]):
            return
        best[0] = value
        for k in range(d):
            best_x[k] = x[k]


@part
def _half(arena, where, node, ball, d, n, known, firsts, i, side, cut, steps, memory):  # type: ignore[no-untyped-def]
    """Make and bound one half of a node at ``where``: (open units, known rows, highest bound)."""
    kind = ON_UNIT if i < n else ON_INPUT
    index = i if i < n else i - n
    value = 0.0
    if kind == ON_INPUT:
        value = middle(node.lo[index], node.hi[index])
    m, kept = half(arena, where, node, ball, d, n, known, firsts, kind, index, value, side, memory)
    if m < 0:
        return m, 0, -np.inf
    groups = len(firsts) - 1
    baby = parts(memory.half, arena, where, m, kept, d, firsts[groups], groups)
    return m, kept, _tuned(baby, ball, d, m, kept, firsts, cut, steps, memory)


@part
def _tuned(node, ball, d, m, kept, firsts, cut, steps, memory):  # type: ignore[no-untyped-def]
    """Bound the open goal groups of a node; the highest bound."""
    work = memory.work
    highest = -np.inf
    for q in range(len(firsts) - 1):
        if node.bound[q] == -np.inf:
            continue
        found = tune(node, ball, d, m, kept, firsts[q], firsts[q + 1], q, cut, steps, False, work)
        node.bound[q] = found
        highest = max(highest, found)
    return highest


@part
def _tightened(node, ball, d, m, kept, firsts, cut, steps, tape, marks, number, memory, stop):  # type: ignore[no-untyped-def]
    """Bound a node's units under what is known, and the goals again; the highest bound."""
    open_, one = 0, 0
    for q in range(len(firsts) - 1):
        if node.bound[q] > -np.inf:
            open_, one = open_ + 1, q
    first, last = (firsts[one], firsts[one + 1]) if open_ == 1 else (0, 0)
    changed, tried = tighten(node, ball, d, m, kept, first, last, cut, m, stop, memory)
    if changed == 0:
        return np.inf
    if len(tape) > 0:
        at = marks[0]
        tape[at], tape[at + 1], tape[at + 2], tape[at + 3] = TIGHTENED, number, cut, first
        tape[at + 4], tape[at + 5] = last, tried
        marks[0] = at + 6
    if changed < 0:
        for q in range(len(firsts) - 1):
            node.bound[q] = -np.inf
        return -np.inf
    return _tuned(node, ball, d, m, kept, firsts, cut, steps, memory)


@part
def _write_cut(tape, marks, number, name, value, left, right):  # type: ignore[no-untyped-def]
    at = marks[0]
    tape[at], tape[at + 1], tape[at + 2] = CUT, number, name
    tape[at + 3], tape[at + 4], tape[at + 5] = value, left, right
    marks[0] = at + 6


@part
def close(node, m, kept, firsts, cut, strict, tape, marks, number, ceiling):  # type: ignore[no-untyped-def]
    """Close the goal groups whose bound has come down to ``cut``; how many stay open."""
    left = 0
    bound = node.bound
    for q in range(len(firsts) - 1):
        if bound[q] == -np.inf:
            continue
        if bound[q] < cut or (bound[q] == cut and not strict):
            ceiling[0] = max(ceiling[0], bound[q])
            if len(tape) > 0:
                marks[0] = write(
                    tape, marks[0], node, m, kept, firsts[q], firsts[q + 1], q, number, CLOSED
                )
            bound[q] = -np.inf
        else:
            left += 1
    return left


@compiled
def explore(  # type: ignore[no-untyped-def]
    whole, ball, arena, stack, count, budget, target, below, tolerance, steps, theta,
    firsts, best, best_x, ceiling, learned, tape, marks, memory, stop,
):  # fmt: skip
    """Work on the stack; returns (why it ended, nodes on the stack, nodes used).

    Args:
        whole: see `root.Whole`.
        budget: nodes to look at, at most.
        target: a point with a value of at least this ends the search; np.inf for a maximum.
        below: with a target, a node is closed when its bound is below this.
        tolerance: for a maximum, how far above the best value a closed bound may be, relative.
        best, best_x: the best value and point so far.
        ceiling: the largest bound that closed a node.
        learned: gain per score of cuts of every unit, and of all; gains of all cuts: sums, counts.
        tape, marks: see `search.proofs.entries`; marks hold the length of the tape, the next
            number, and how many nodes could not be settled.
        stop: a byte that ends the search when it is set.
    """
    work, lp, jump = memory.work, memory.programme, memory.scratch.jump
    v, lam, x, z, y = work.v, work.lam, work.x, work.z, work.y
    bx, score, rank = work.best_x, work.score, work.rank
    d, real = len(best_x), len(whole.sides)
    disjuncts = len(firsts) - 1
    goals = firsts[disjuncts]
    strict = target < np.inf
    used = 0
    while count > 0:
        if stop[0]:
            return STOPPED, count, used
        if used >= budget:
            return OUT_OF_NODES, count, used
        top = count - 1
        n, known, at, depth, number = topmost(stack, top)
        if len(tape) > 0:
            entry = size_of_entry(n, known + 1, goals)
            if marks[0] + 18 + 3 * disjuncts * entry > len(tape):
                return TAPE_FULL, count, used
        node = parts(memory.node, arena, at, n, known, d, goals, disjuncts)
        bound = node.bound
        cut = below if strict else best[0] + 0.5 * tolerance * max(1.0, abs(best[0]))
        if close(node, n, known, firsts, cut, strict, tape, marks, number, ceiling) == 0:
            count = top
            continue
        used += 1
        worst = 0
        for q in range(disjuncts):
            if bound[q] > bound[worst]:
                worst = q
        first, last = firsts[worst], firsts[worst + 1]
        begin = at + node_size(n, known, d, goals, disjuncts)
        free = open_units(node, n)
        by_unit = free <= patience(node, real, theta, whole.sides)
        solved = by_unit and free > 0 and d + n <= MOST_VARIABLES and len(ball) == 0
        if solved:
            bound[worst] = solve(
                node, ball, d, n, known, first, last, worst, cut, PIVOTS, lp, work, x, y
            )
            for j in range(n):
                z[j] = row_at(node.rows[j], node.const[j], x, y, j)
                score[j] = y[j]
            _offer(whole, ball, first, last, x, y, best, best_x)
            for j in range(n):
                y[j] = score[j]
            if best[0] >= target:
                return REACHED, count, used
            if not strict:
                cut = best[0] + 0.5 * tolerance * max(1.0, abs(best[0]))
            if close(node, n, known, firsts, cut, strict, tape, marks, number, ceiling) == 0:
                count = top
                continue
            if bound[worst] == -np.inf:
                continue
        bound_of(node, ball, d, n, known, first, last, worst, work, x)
        if not solved:
            forward(x, node, lam, node.alpha[worst], n, z, y)
        scores(node, n, jump, lam, z, y, v, score)
        idle = not matters(score, n)  # no open unit costs the bound anything
        curved = len(ball) > 0
        if idle and not curved:
            m, kept = straightened(arena, begin, node, ball, d, n, known, firsts, memory)
            if m == -2:
                return FULL, count, used
            if m == -1:
                count = top  # nothing is feasible
                continue
            leaf = parts(memory.half, arena, begin, m, kept, d, goals, disjuncts)
            curved = not solvable(leaf, d, m, kept, first, last, lp)
            if not curved and linear(leaf, d, m, kept, first, last):
                value = solve(
                    leaf, ball, d, m, kept, first, last, worst, cut, LEAF_PIVOTS, lp, work, x, y
                )
                _offer(whole, ball, first, last, x, y, best, best_x)
                if best[0] >= target:
                    return REACHED, count, used
                cut = below if strict else best[0] + 0.5 * tolerance * max(1.0, abs(best[0]))
                closed = value < cut or (value == cut and not strict)
                if closed or linear(leaf, d, m, kept, -kept, 0):
                    # no known row was left out of the programme: better cannot be had
                    ceiling[0] = max(ceiling[0], value)
                    bound[worst] = -np.inf
                    if strict and not closed:
                        marks[2] += 1  # neither reached nor excluded
                    if len(tape) > 0:
                        marks[0] = write(
                            tape, marks[0], leaf, m, kept, first, last, worst, number, FOLDED
                        )
                    continue
            # known rows read open units: decide those
            for j in range(n):
                low, high = node.low[j], node.high[j]
                score[j] = high * -low / (high - low) if low < 0.0 else 0.0
            idle = not matters(score, n)
        if idle and curved:
            # on a ball, or with too many inputs for a programme, the multipliers of the known rows
            # are all there is to find
            bound[worst] = tune(
                node, ball, d, n, known, first, last, worst, cut, 20 * steps, True, work
            )
            if close(node, n, known, firsts, cut, strict, tape, marks, number, ceiling) == 0:
                count = top
                continue
            if bound[worst] == -np.inf:
                continue
        promise(node, n, score, learned, rank)
        old = bound[worst]
        pick, top_rank = -1, -1.0
        if idle:
            # what is left to gain is in the corners of the box: halve its longest side
            pick, longest = n, 0.0
            for k in range(real):
                if node.hi[k] - node.lo[k] > longest:
                    pick, longest = n + k, node.hi[k] - node.lo[k]
        elif not by_unit:
            pick = n + max(widest(node, d, n, real, lam, v, work.tilt), 0)
        look = LOOK if n * (d + n) <= LARGE else LOOK_LARGE
        for _ in range(look if pick < 0 else 0):
            i = -1
            for j in range(n):
                if rank[j] > 0.0 and (i < 0 or rank[j] > rank[i]):
                    i = j
            if i < 0 or rank[i] <= top_rank:
                break
            name = int(node.units[i])
            if min(learned[name, 0, 1], learned[name, 1, 1]) >= RELIABLE:
                pick = i
                break
            measured = 1.0
            for side in range(2):
                if stop[0]:
                    return STOPPED, count, used
                m, kept, highest = _half(
                    arena, begin, node, ball, d, n, known, firsts, i, side, cut, steps // 2, memory
                )
                if m == -2:
                    return FULL, count, used
                drop = old - max(highest, cut)
                learn(node, i, learned, side, drop / score[i])
                measured *= max(drop, 1e-3 * score[i])
            used += 1
            rank[i] = -1.0
            if measured > top_rank:
                pick, top_rank = i, measured
        if pick < 0:
            pick = 0
            for j in range(n):
                if score[j] > score[pick]:
                    pick = j
        if pick >= n and not splits(node.lo[pick - n], node.hi[pick - n]):
            # a single point that cannot be closed: what is known stays the bound
            ceiling[0] = max(ceiling[0], bound[worst])
            if strict:
                marks[2] += 1
            if len(tape) > 0:
                marks[0] = write(tape, marks[0], node, n, known, first, last, worst, number, CLOSED)
            bound[worst] = -np.inf
            continue
        where, fresh = begin, 0
        left, right = -1.0, -1.0
        for side in range(2):
            if stop[0]:
                return STOPPED, count, used
            m, kept, highest = _half(
                arena, where, node, ball, d, n, known, firsts, pick, side, cut, steps, memory
            )
            if m == -2 or top + 3 >= len(stack):
                return FULL, count, used
            drop = old - max(highest, cut)
            if pick < n:
                learn(node, pick, learned, side, drop / max(score[pick], 1e-300))
            if m < 0:
                continue
            baby = parts(memory.half, arena, where, m, kept, d, goals, disjuncts)
            for k in range(d):
                x[k] = bx[k]
            _offer(whole, ball, first, last, x, y, best, best_x)
            if not strict:
                cut = best[0] + 0.5 * tolerance * max(1.0, abs(best[0]))
            mine = marks[1]
            marks[1] += 1
            if side == 0:
                left = float(mine)
            else:
                right = float(mine)
            learned[-1, 0, 0] += drop
            learned[-1, 0, 1] += 1.0
            cuts = FAR if d + m <= MOST_VARIABLES else FAR_UNSOLVED
            far = cuts * learned[-1, 0, 0] / learned[-1, 0, 1]
            price = 2.0 * (STEPS + 1.0) * m * m * (d + m)
            if pick < n and highest - cut > far and cut > -np.inf and price < MOST:
                _tightened(
                    baby, ball, d, m, kept, firsts, cut, steps, tape, marks, mine, memory, stop
                )
                ceiling[0] = max(ceiling[0], cut)
            if close(baby, m, kept, firsts, cut, strict, tape, marks, mine, ceiling) == 0:
                continue
            fresh += 1
            push(stack, top + fresh, m, kept, where, depth + 1, mine)
            where += node_size(m, kept, d, goals, disjuncts)
        if len(tape) > 0:
            across, value = 0.0, 0.0
            if pick < n:
                across = node.units[pick]
            else:
                across = -1.0 - (pick - n)
                value = middle(node.lo[pick - n], node.hi[pick - n])
            _write_cut(tape, marks, number, across, value, left, right)
        count = move_down(arena, stack, top, fresh, begin, where)
        if best[0] >= target:
            return REACHED, count, used
    return DONE, count, used
