"""Parts of the verbs: reports of damage, counts, and directories that are written durably.

Start with `tally.py` and `findings.py`, which are the work of `stat` and `verify`. The modules
import the modules of `wirescan.cli` beside this folder, and the folders below `wirescan.cli`.
"""
