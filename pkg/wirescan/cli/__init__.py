"""The command `wirescan`.

Start with `main.py`: it finds the verbs and reports errors. `verbs/` has one module for each verb,
and `support/` has larger parts of the verbs. `common.py` has the options that verbs share,
`input.py` reads files and standard input, and `output.py` makes text that is safe to print.

The folder imports every other folder; no other folder imports it.
"""
