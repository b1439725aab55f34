"""Imported last by the process that workers are forked from: what it holds by now is left alone by
the garbage collector, whose marks would otherwise copy every page into every worker."""

import gc

gc.collect()
gc.freeze()
