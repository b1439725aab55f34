"""Where a monitor's numbers go: one thin file per training framework.

Each is imported by name (``from relunorm.dying.adapters.tensorboard import to_tensorboard``), so
that no framework is needed for another.
"""
