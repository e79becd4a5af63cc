"""Slow and simple decoders, one per package. They are the specification of the kernels.

For any bytes, a kernel gives the same rows and faults as its reference decoder.
"""
