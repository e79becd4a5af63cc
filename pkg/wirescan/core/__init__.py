"""The kernel toolkit: reader, writer, text, loop over frames, checksums, rows and byte strings.

The protocol packages build their kernels from it. Start with `loop.pxd`: it describes rows, and
the functions that a kernel gives to the loop. `reader.pxd` reads fields of a frame, `text.pxd`
reads lines and decimals, and `writer.pxd` writes fields. `arguments.py` and `arrow_input.py`
convert the arguments of encoders. `include_path.py` has `wirescan.get_include`.

Imports nothing from other folders.
"""
