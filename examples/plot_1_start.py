"""
Start in five minutes
=====================

Read a network, evaluate it, ask what it is on a box: its linear pieces, its steepest slope, its
largest value. Every answer here is exact.
"""

# %%
# A network is read once into one immutable object, whatever it was made with: an ONNX file, a
# torch module, a scikit-learn or Keras model, an .npz of weights. ``example:moons`` ships with
# the package.

import relunorm as rn

net = rn.load("example:moons")
box = rn.Box.cube(2, -2, 3)
print(net)
print("f(0.1, 0.2) =", net([[0.1, 0.2]]).item(), " gradient", net.jacobian([0.1, 0.2])[0])

# %%
# It is affine on each of its regions. All of them:

cells = rn.regions(net, box)
print(cells)
picture = cells.plot()

# %%
# One region, from a point inside: which units are active, the affine map, the walls.

region = rn.region_at(net, [0.1, 0.2], domain=box)
A, c = region.affine
print("f(x) =", A[0], "x +", c[0], "on a polygon of", len(region.polytope.walls), "walls")

# %%
# The Lipschitz constant on the box, as an interval with the method behind each end. Here they
# meet.

print(rn.lipschitz(net, box))

# %%
# The largest value and where it is taken, by branch and bound, proved.

print(rn.maximize(net, box))
