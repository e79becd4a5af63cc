"""Checks for formats, also for those of other packages.

The whole test of a package may be this short:

    from wirescan.testing import check_format

    def test_netstrings():
        check_format("netstrings", [b"5:hello,0:,", b"3:abc,10:0123456789,"])

`check_format` applies every law to the examples, to their mutations and to random bytes. With a
slow reference decoder it also compares the rows. Start with `conformance.py`.

    conformance.py      `check_format`
    laws.py             the laws, and `ProtocolPackage`, to which they apply
    mutations.py        damage to bytes
    guarded_memory.py   bytes next to pages that cannot be read
    guarded_scans.py    scans of such bytes, in a process of its own
    cost.py             time and memory
    declarations.py     what a `Format` declares

This folder imports `core`, `frames`, `files` and `reading`. No other folder imports it. It needs no
package but numpy. With pyarrow it checks Arrow too, and hypothesis generates bytes if a strategy is
given.
"""

from wirescan.testing.conformance import check_format
from wirescan.testing.guarded_memory import GuardedMemory
from wirescan.testing.guarded_scans import assert_nothing_is_read_outside
from wirescan.testing.laws import ProtocolPackage
from wirescan.testing.mutations import iter_mutations

__all__ = [
    "GuardedMemory",
    "ProtocolPackage",
    "assert_nothing_is_read_outside",
    "check_format",
    "iter_mutations",
]
