"""Larger parts of the verbs.

Start with `tally.py` and `verifier.py`, which are the work of `stat` and `verify`.

Which frames are read:

    format_choice.py     the format of files, without --format
    selection.py         what the user selects, and which files and frames can hold it
    selection_options.py options such as --where and --offset
    row_choice.py        --limit, --tail and --sample
    selected_tables.py   the selected tables of frames in files
    followed_tables.py   the same in files that grow (--follow)
    bad_blocks.py        counts the bad blocks of captures; also for `stat` and `report`

`stat`:

    tally.py             counts over tables of frames
    latencies.py         times from requests to their responses
    quantiles.py         exact quantiles of integers

`verify`:

    verifier.py          verifies files frame by frame
    opened_formats.py    which formats are opened inside frames
    checked_frames.py    which frames are verified where the user selects some
    log_verifier.py      verifies one log, its end, and the files beside its segments
    segment_scope.py     which segments of a log are read
    gap_rules.py         order and gaps of offsets, and what explains a gap
    log_offsets.py       follows offsets from batch to batch; also for `stat`
    losses.py            what a damaged log has lost; also for `salvage`
    finding_printer.py   prints findings as text or JSON lines

`report`:

    report_numbers.py    the numbers of the page
    report_sample.py     what other codecs would save
    report_charts.py     the charts
    report_page.py       the page and the ticket
    report_scripts.py    the style and the scripts of the page

Output of frames:

    frame_writers.py     text, JSON lines, CSV, templates, Arrow and Parquet
    decoded_rows.py      rows with decoded payloads
    template.py          --template
    query.py             a first query on Parquet files

Live systems:

    cluster_options.py   the address and the login of a Kafka cluster
    tls.py               TLS of `receive` and `send`
    fetch_store.py       the directory that `fetch` writes
    spool.py             the directory that `receive` writes
    durable_directory.py what both directories have in common
    record_readers.py    the records that `produce` writes
    resume_file.py       up to which offset `produce` has written
    line_blocks.py       lines of text with their numbers
    compared_logs.py     the logs that `diff` compares

The modules import the modules of `wirescan.cli` beside this folder, and the folders below
`wirescan.cli`.
"""
