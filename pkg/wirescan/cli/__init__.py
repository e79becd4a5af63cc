"""The command `wirescan`.

Start with `main.py`, then read a verb, such as `verbs/verify.py`.

The command:
    main: finds the verbs, and turns errors into messages.
    exit_codes: exit codes, and the errors that become messages.
    completion: what the shell offers for a word.
    versions: what `wirescan --version` prints.

Arguments and options of several verbs:
    common_options: PATH, and options such as --json, --columns and --max-frame.
    format_command: --format, and the options that formats declare.
    payload_options: --decode.
    path_arguments: the files of PATH arguments.

Input:
    input: reads files, URLs and standard input in pieces.
    foreign_files: recognizes compressed files, and files without frames.
    file_ends: cut tails and empty files.

Output:
    output: JSON lines, messages, colours, and files that are complete when they get their name.
    csv_rows: rows as CSV.
    progress: progress bars.

Folders:
    verbs: one module for each verb.
    support: larger parts of the verbs.

The folder imports every other folder; no other folder imports it.
"""
