"""The tests of wirescan.

A folder for each folder of the package holds its tests. The others:

- `laws`: what holds for every format, and what a few hostile bytes may cost.
- `reference`: independent slow decoders. `strategies`: generators of good and damaged bytes.
- `support`: what several tests use: fake brokers, the guard of memory pages, child processes.
- `corpus`: recorded bytes of real programs. `peers`: those programs, started by scripts.
- `spark`, `fuzz`, `outside`, `planted_errors`, `line_coverage`, `typing`: groups of their own.

No test module imports from another one.
"""
