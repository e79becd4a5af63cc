"""Slow, obvious decoders, one per room: the specification that the kernels agree with, for any bytes."""
