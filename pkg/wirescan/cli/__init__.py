"""The command `wirescan`.

Start with `main.py`, then read a verb, such as `verbs/verify.py`.

The command:

    main.py            finds the verbs, and turns errors into messages
    exit_codes.py      exit codes, and the errors that become messages
    completion.py      what the shell offers for a word
    versions.py        what `wirescan --version` prints

Arguments and options of several verbs:

    common_options.py  PATH, and options such as --json, --columns and --max-frame
    format_command.py  --format, and the options that formats declare
    payload_options.py --decode
    path_arguments.py  the files of PATH arguments

Input:

    input.py           reads files, URLs and standard input in chunks
    foreign_files.py   recognizes compressed files, and files without frames
    file_ends.py       cut tails and empty files

Output:

    output.py          JSON lines, messages, colours, and files that are never half written
    csv_rows.py        rows as CSV
    progress.py        progress bars

Folders:

    verbs/             one module for each verb
    support/           larger parts of the verbs

The folder imports every other folder; no other folder imports it.
"""
