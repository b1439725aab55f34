"""Linear bounds on the difference over a box, in terms of the units that are open there.

A unit that keeps its sign in both networks over a box is linear in what it reads. With all of those
put in (`rows`), every pre-activation z and every difference e (see `relunorm.bounds.pairs.pair`) is
affine in the inputs, the values p = relu(z) and the differences q = relu(z + e) - relu(z) of the
open units below it:

    z = A (1, x, p),        e = B (1, x, p) + C q .

The same goes for y = z + e in terms of relu(y). Small boxes have few open units, so these rows are
short, and backward bounds (`ends`; the lines are those of `relunorm.bounds.pairs.linear`) run over
them instead of over whole layers. A closed unit stays closed in every part of a box; what a part
has to know of the box around it is which units those are (`units`).

What is lost over a large box is lost in z and y, deep in the networks. So the slopes of their lines
below relu are tuned for every bound: a row that takes such a line is largest at some corner of the
box, and there the line should have slope 1 where z > 0 and 0 elsewhere. A few steps in that
direction follow the gradient of the bound. (Optimised slopes: Xu et al., alpha-CROWN, ICLR 2021.)

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.arithmetic.floats`).
"""
