"""Two networks walked over one basis, and the bound on f - g that follows from their relations.

Every statement of a `Relation` is checked, not believed: `Walk` computes each pre-activation as an
affine form in the basis together with a bound on how far the true value can be from the form, in
real arithmetic (rounding included, module `outward`). A wrong relation is never unsound: it makes
the bound large.

Errors are bounded unit by unit and, all units of a value together, in the Euclidean norm
(`ErrorBalls`): a matrix multiplies the first by its absolute entries and the second by its
spectral norm at most, which is several times smaller and makes that difference at every layer. The
smaller bound counts.

A step unit y = step(z) is ``scaled`` when y = g and ``opposite`` when y = 1 - g, and that holds
only where z is further from 0 than the mismatch of the two pre-activations. `Walk(reach)` counts a
whole jump for it. `Walk(reach, away=True)` counts none and notes the mismatch in `Side.margins`:
what it proves holds for the inputs x at which no such unit has |z(x)| <= its margin. By induction
over the layers: where no earlier unit is in doubt the forms and their errors are right, so z and
its partner have the same sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError
from relunorm.forms import outward
from relunorm.forms.outward import Range
from relunorm.forms.relation.relation import (
    LINEAR,
    NEW,
    OPPOSITE,
    SCALED,
    Block,
    ErrorBalls,
    Relation,
    Side,
)
from relunorm.forms.rewrite import multiply, one_hot, rows, scaled, total
from relunorm.matrix import Matrix, Vector
from relunorm.network import Activation, Affine, Network, whole

#: Errors above this share of a value are followed in the Euclidean norm too; rounding is not.
WORTH_A_NORM = 2.0**-46


Decide = Callable[["Walk", Side, Affine, Vector, Range], Relation]


class Walk:
    """The basis shared by two networks over a domain, built one layer at a time.

    Args:
        away: leave out inputs at which a related step unit is within its margin of the threshold.
        clock: raises `TimeLimitError` when it ends before the walk does.
    """

    def __init__(self, reach: Reach, *, away: bool = False, clock: Clock = NO_LIMIT):
        self.reach, self.clock = reach, clock
        self.away = away
        self.ranges: list[Range] = [Range(reach.lo, reach.hi)]
        self.lengths = [outward.euclidean(self.ranges[0].largest)]
        self.blocks: list[Block | None] = [None]
        self.sides: list[Side] = []

    def add(self, network: Network, bounds: Sequence[Range]) -> Side:
        """Start walking a network whose layers have the given proved pre-activation bounds."""
        self.reach.domain.check_dimension(network.input_size)
        side = Side(network, list(bounds), len(self.sides))
        size = network.input_size
        self._value(side, whole(0, size), np.zeros(size))
        side.boxes.append(self.ranges[0])
        self.sides.append(side)
        return side

    def run(self, side: Side, decide: Decide) -> None:
        """Walk all layers of a network, relating each by ``decide``."""
        for k, layer in enumerate(side.network.layers):
            self.clock.check()
            form, error, balls = self._substituted(side, layer.affine)
            # forms know what cancels, the values' own intervals know what was proved about them
            direct = outward.span(layer.affine, side.boxes, self.reach)
            span = self.span(form, error).meet(direct).meet(side.bounds[k])
            relation = decide(self, side, form, error, span)
            self._check(side, relation)
            side.forms.append(form)
            side.form_errors.append(error)
            side.form_balls.append(balls)
            side.ranges.append(span.meet(side.bounds[k]))  # more may have been proved by now
            side.relations.append(relation)
            self._apply(side, layer.activation, relation)

    @cached_property
    def difference(self) -> Range:
        """Bounds on f - g, output by output, once both networks have been walked."""
        first, second = self.sides
        if first.network.output_size != second.network.output_size:
            raise InvalidInputError(
                f"the networks have {first.network.output_size} and {second.network.output_size} "
                "outputs; only functions of the same shape can be compared"
            )
        return self.span(*self.form)

    @property
    def largest(self) -> float:
        """The bound on |f - g| that a finished walk proves; inf where it overflows."""
        bound = float(self.difference.largest.max())
        return bound if bound == bound else np.inf

    @property
    def form(self) -> tuple[Affine, Vector]:
        """f - g as a form in the basis, and its error bound."""
        (f, f_error), (g, g_error) = (self.substitute(x, x.network.output) for x in self.sides)
        form, error = self.minus(f, g, np.ones(f.size))
        return form, error + f_error + g_error

    def substitute(self, side: Side, affine: Affine) -> tuple[Affine, Vector]:
        """A map of the network's values as a form in the basis, and its error bound."""
        form, error, _ = self._substituted(side, affine)
        return form, error

    def _substituted(self, side: Side, affine: Affine) -> tuple[Affine, Vector, ErrorBalls]:
        """The same, and all errors together."""
        terms: dict[int, Matrix] = {}
        bias = affine.bias.copy()
        error = outward.gamma(len(affine.terms) + 1) * np.abs(bias)
        depth = 2 + len(affine.terms)
        carried, balls = np.zeros(affine.size), ErrorBalls(())
        for source, matrix in affine.terms.items():
            inner, weight = side.values[source], abs(matrix)
            bias += matrix @ inner.bias
            part, together = self._carried(side, source, matrix, weight)
            carried, balls = carried + part, balls.plus(together)
            error += weight @ side.rounding[source]
            error += outward.gamma(len(affine.terms)) * (weight @ side.sizes[source])
            depth += matrix.shape[1] + 1
            for k, piece in inner.terms.items():
                product = matrix if source == 0 else multiply(matrix, piece)
                terms[k] = mx.add(terms[k], product) if k in terms else product
                error += matrix.shape[1] * outward.underflow_loss(self.ranges[k])
        form = Affine({k: mx.compact(m) for k, m in terms.items()}, bias)
        error, both = outward.up(error, depth), outward.up(error + carried, depth)
        return form, both, balls.plus(ErrorBalls.ball(outward.euclidean(error)))

    def _carried(
        self, side: Side, source: int, matrix: Matrix, weight: Matrix
    ) -> tuple[Vector, ErrorBalls]:
        """What the errors of a value become in a map of it: row by row, and all together."""
        part = weight @ side.errors[source]
        norm = side.balls[source].norm
        worth = norm > WORTH_A_NORM * outward.euclidean(side.sizes[source])
        if not (worth and np.isfinite(norm)):
            return part, ErrorBalls.ball(outward.euclidean(outward.up(part, matrix.shape[1])))
        lengths = outward.row_lengths(matrix)
        balls = side.balls[source].mapped(matrix)
        part = np.minimum(part, np.minimum(outward.up(lengths * norm, 2), balls.rows(len(part))))
        straight = outward.euclidean(outward.up(part, matrix.shape[1]))
        return part, balls if balls.norm < straight else ErrorBalls.ball(straight)

    def span(self, form: Affine, error: Vector) -> Range:
        """The range of what the form stands for: by the box of every block, or by its length.

        Boxes of deep layers are far too wide in most directions: each layer multiplies them by the
        sums of its weights, and the lengths by its spectral norm.
        """
        box = outward.span(form, self.ranges, self.reach)
        around = np.zeros(form.size)
        for block, matrix in form.terms.items():
            around += outward.row_lengths(matrix) * self.lengths[block]
        around = outward.up(around, len(form.terms) + 4)
        lost = 4 * outward.UNIT * (np.abs(form.bias) + around) + outward.TINY
        ball = Range(form.bias - around - lost, form.bias + around + lost)
        box = box.meet(ball)
        return Range(box.lo - error, box.hi + error)

    def _length(self, block: Block) -> float:
        """A bound on the Euclidean norm of a block's basis functions."""
        straight = outward.euclidean(block.range.after(block.activation).largest)
        if block.activation.kind == "step" or not block.forms.size:
            return straight
        length = outward.euclidean(outward.up(np.abs(block.forms.bias) + block.error, 2))
        for k, matrix in block.forms.terms.items():
            length += outward.up_once(outward.spectral_norm(matrix) * self.lengths[k])
        steep = max(map(abs, block.activation.slopes))
        length *= steep * (1 + 4 * outward.UNIT * len(block.forms.terms))
        return min(straight, outward.up_once(length))

    def minus(self, left: Affine, right: Affine, factors: Vector) -> tuple[Affine, Vector]:
        """``left - diag(factors) right`` and the bound on its rounding."""
        scaled_right = scaled(right, -factors)
        terms = dict(scaled_right.terms)
        for k, matrix in left.terms.items():
            terms[k] = mx.add(matrix, terms[k]) if k in terms else matrix
        form = Affine(terms, left.bias + scaled_right.bias)
        sizes = [outward.magnitude(part, self.ranges) for part in (left, scaled_right)]
        lost = sum(outward.underflow_loss(self.ranges[k]) for k in right.terms)
        return form, outward.up(4 * outward.UNIT * (sizes[0] + sizes[1]) + lost, 4)

    def gap(self, left: Affine, right: Affine, factors: Vector) -> Vector:
        """A bound on |left - diag(factors) right| over the domain, row by row."""
        form, error = self.minus(left, right, factors)
        return outward.up(self.span(form, error).largest, 2)

    def transferred(self, form: Affine, error: Vector, relation: Relation) -> Range:
        """Bounds that carry over to LINEAR units from the unit of the first network they name."""
        low, high = np.full(form.size, -np.inf), np.full(form.size, np.inf)
        named = (relation.kind == LINEAR) & (relation.block >= 0)
        first = self.sides[0]
        for layer in np.unique(relation.block[named]):
            here = np.flatnonzero(named & (relation.block == layer))
            units = relation.index[here]
            theirs, ours = rows(first.forms[layer], units), rows(form, here)
            factor = proportion(ours, theirs, self.ranges)
            shift = ours.bias - factor * theirs.bias
            moved = Affine(ours.terms, ours.bias - shift)
            gap = self.gap(moved, theirs, factor) + error[here]
            gap += np.abs(factor) * first.form_errors[layer][units]
            ends = [factor * r[units] for r in (first.ranges[layer].lo, first.ranges[layer].hi)]
            size = np.abs(ends).max(axis=0) + np.abs(shift) + np.abs(ours.bias) + np.abs(moved.bias)
            slack = outward.up(gap + 8 * outward.UNIT * size, 4)
            low[here] = np.minimum(*ends) + shift - slack
            high[here] = np.maximum(*ends) + shift + slack
        return Range(low, high)

    def _check(self, side: Side, relation: Relation) -> None:
        """Raise unless everything the relation names exists; negative numbers would wrap around."""
        widths = [*map(self._width, range(len(self.ranges))), int((relation.kind == NEW).sum())]
        on_basis = (relation.kind == SCALED) | (relation.kind == OPPOSITE)
        named = (relation.kind == LINEAR) & (relation.block >= 0)
        layers = [form.size for form in self.sides[0].forms]
        for mask, sizes, least in ((on_basis, widths, 1), (named, layers, 0)):
            for block, index in zip(relation.block[mask], relation.index[mask], strict=True):
                if not (least <= block < len(sizes) and 0 <= index < sizes[block]):
                    raise InvalidInputError(
                        f"layer {len(side.forms)}: the relation names unit {index} of block "
                        f"{block}, which does not exist"
                    )

    def _apply(self, side: Side, activation: Activation, relation: Relation) -> None:
        form, error, span = side.forms[-1], side.form_errors[-1], side.ranges[-1]
        kind = relation.kind
        self._new_block(side, activation, np.flatnonzero(kind == NEW))
        below, above = activation.slopes
        steep = max(abs(below), abs(above))
        target_block, target = relation.block.copy(), relation.index.copy()
        new = kind == NEW
        target_block[new], target[new] = len(self.blocks) - 1, np.arange(new.sum())
        target_block[kind == LINEAR] = -1  # what a linear unit names is no basis function
        step = activation.kind == "step"
        on_basis = np.where(new, 1.0, relation.factor)
        if step:  # a scale makes no difference; the opposite of g is 1 - g
            on_basis = np.where(kind == OPPOSITE, -1.0, 1.0)
        on_form = np.where(kind == OPPOSITE, below + above, 0.0)
        on_form[kind == LINEAR] = relation.factor[kind == LINEAR]
        value_error = np.zeros(len(kind))
        side.margins.append(np.full(len(kind), np.nan))
        for b in np.unique(target_block[(kind == SCALED) | (kind == OPPOSITE)]):
            here = np.flatnonzero(((kind == SCALED) | (kind == OPPOSITE)) & (target_block == b))
            sign = np.where(kind[here] == SCALED, 1.0, -1.0)
            off = self._mismatch(side, here, b, target[here], sign, relation)
            value_error[here] = self._jump(side, here, activation, off) if step else steep * off
            span = self._inherited(span, here, b, target[here], sign * relation.factor[here], off)
        linear = kind == LINEAR
        span = span.meet(self.transferred(form, error, relation))
        side.ranges[-1] = span
        side.boxes.append(span.after(activation))
        value_error[linear] = _bend(activation, span, relation)[linear]
        value_error += np.abs(on_form) * (
            error + 4 * outward.UNIT * outward.magnitude(form, self.ranges)
        )
        value_error += sum(outward.underflow_loss(self.ranges[k]) for k in form.terms)
        value_error += np.where(on_form != 0, 2 * outward.UNIT * np.abs(relation.constant), 0.0)
        picked = [
            Affine(
                {b: one_hot(np.where(target_block == b, target, -1), on_basis, self._width(b))},
                np.zeros(len(kind)),
            )
            for b in np.unique(target_block[~linear])
        ]
        constant = np.where(linear, relation.constant, 0.0)
        if step:
            constant = np.where(kind == OPPOSITE, 1.0, constant)
        straight = scaled(form, on_form)
        straight = Affine(straight.terms, straight.bias + constant)
        related = (kind == SCALED) | (kind == OPPOSITE)
        share = np.where(related & (not step), steep, 0.0) + np.abs(on_form)
        value_error = outward.up(value_error, 4)
        own = value_error - share * error * (1 - 8 * outward.UNIT)  # what the form's error adds
        fresh = outward.euclidean(outward.up(np.maximum(own, 0.0), 2))
        # a related unit passes on the error of its form with one of its slopes, a linear one with t
        ends = [np.where(related & (not step), end(below, above), 0.0) for end in (min, max)]
        low, high = (np.where(linear, on_form, end) for end in ends)
        balls = side.form_balls[-1].passed(low, high, fresh)
        self._value(side, total([straight, *picked]), value_error, balls)

    def _jump(
        self, side: Side, units: NDArray[np.intp], activation: Activation, off: Vector
    ) -> Vector | float:
        """What a step loses to a mismatch: nothing away from its threshold, a jump otherwise."""
        if self.away:  # NaN there means that a unit is no matter
            side.margins[-1][units] = np.where(np.isnan(off), np.inf, off)
            return 0.0
        return max(1.0, abs(activation.at_zero), abs(1.0 - activation.at_zero))

    def _new_block(self, side: Side, activation: Activation, units: NDArray[np.intp]) -> None:
        form, error, span = side.forms[-1], side.form_errors[-1], side.ranges[-1]
        here = Range(span.lo[units], span.hi[units])
        block = Block(rows(form, units), error[units], here, activation, side.number)
        self.blocks.append(block)
        self.ranges.append(here.after(activation))
        self.lengths.append(self._length(block))

    def _inherited(
        self,
        span: Range,
        units: NDArray[np.intp],
        block: int,
        targets: NDArray[np.intp],
        factor: Vector,
        off: Vector,
    ) -> Range:
        """The range with what is known about the basis functions the units are multiples of."""
        basis = self.blocks[block]
        lo, hi = span.lo.copy(), span.hi.copy()
        if basis is not None:
            ends = [factor * end[targets] for end in (basis.range.lo, basis.range.hi)]
            slack = outward.up(off + 4 * outward.UNIT * np.abs(ends).max(axis=0), 4)
            lo[units] = np.maximum(lo[units], np.minimum(*ends) - slack)
            hi[units] = np.minimum(hi[units], np.maximum(*ends) + slack)
        return Range(lo, hi)

    def _mismatch(
        self,
        side: Side,
        units: NDArray[np.intp],
        block: int,
        targets: NDArray[np.intp],
        sign: Vector,
        relation: Relation,
    ) -> Vector:
        """A bound on |z - sign s P_g|, the true values, not the forms."""
        basis = self.blocks[block]
        activation = side.network.layers[len(side.forms) - 1].activation
        factor = relation.factor[units]
        if basis is None or basis.activation != activation or not (factor > 0).all():
            raise InvalidInputError(
                "the relation names a basis unit that does not exist, has another activation, or a "
                "factor that is not positive"
            )
        gap = self.gap(rows(side.forms[-1], units), rows(basis.forms, targets), sign * factor)
        return outward.up(gap + side.form_errors[-1][units] + factor * basis.error[targets], 4)

    def _value(
        self, side: Side, form: Affine, error: Vector, balls: ErrorBalls | None = None
    ) -> None:
        side.values.append(form)
        side.errors.append(error)
        together = outward.euclidean(error)
        smaller = balls is not None and balls.norm < together
        side.balls.append(balls if balls is not None and smaller else ErrorBalls.ball(together))
        size = np.abs(form.bias)
        rounding = outward.gamma(1 + np.count_nonzero(form.bias)) * size
        for k, matrix in form.terms.items():
            part = abs(matrix) @ self.ranges[k].largest
            summed = int(mx.column_counts(matrix).max(initial=0))
            size, rounding = size + part, rounding + outward.gamma(1 + summed) * part
        side.sizes.append(outward.up(size, outward.inner_size(form)))
        side.rounding.append(outward.up(rounding, outward.inner_size(form)))

    def _width(self, block: int) -> int:
        return len(self.ranges[block].lo)


def proportion(ours: Affine, theirs: Affine, ranges: Sequence[Range]) -> Vector:
    """The factor that best maps the rows of one form to those of the other, biases aside.

    Least squares, each coefficient weighted by how far its basis function swings.
    """
    dot, square = np.zeros(ours.size), np.zeros(ours.size)
    for k, matrix in theirs.terms.items():
        swing = ranges[k].hi - ranges[k].lo
        weighted = mx.scale_columns(matrix, swing * swing)
        square += _row_dots(weighted, matrix)
        if k in ours.terms:
            dot += _row_dots(weighted, ours.terms[k])
    return np.divide(dot, square, out=np.ones_like(dot), where=square > 0)


def _row_dots(left: Matrix, right: Matrix) -> Vector:
    if type(left) is not type(right):
        left, right = mx.dense(left), mx.dense(right)
    return np.asarray((left * right).sum(axis=1)).ravel()


def _bend(activation: Activation, span: Range, relation: Relation) -> Vector:
    """max |act(z) - t z - c| for z in the range: reached at an end or at the kink."""
    slope, constant = relation.factor, relation.constant
    below, above = activation.slopes
    worst = np.zeros(len(slope))
    inside = (span.lo <= 0) & (span.hi >= 0)

    def off(value: Vector, z: Vector) -> Vector:
        product = slope * z
        away = np.abs(value - product - constant)
        pad = 4 * outward.UNIT * (np.abs(value) + np.abs(product) + np.abs(constant))
        same = (constant == 0) & np.where(z > 0, slope == above, slope == below)
        return np.where(same & (activation.kind != "step"), 0.0, away + pad)

    if activation.kind == "step":
        for side_value, use in ((0.0, span.lo <= 0), (1.0, span.hi >= 0)):
            for z in (np.minimum(span.lo, 0.0), np.maximum(span.hi, 0.0)):
                worst = np.maximum(worst, np.where(use, off(np.full_like(z, side_value), z), 0.0))
        at_zero = off(np.full_like(worst, activation.at_zero), np.zeros_like(worst))
        worst = np.maximum(worst, np.where(inside, at_zero, 0.0))
        return np.where(np.isnan(worst), np.inf, worst)
    with np.errstate(invalid="ignore"):
        for z in (span.lo, span.hi):
            worst = np.maximum(worst, off(np.where(z > 0, above * z, below * z), z))
    worst = np.maximum(worst, np.where(inside, np.abs(constant), 0.0))
    return np.where(np.isnan(worst), np.inf, worst)
