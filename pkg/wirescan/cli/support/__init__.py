"""Larger parts of the verbs.

Start with `tally.py` and `verifier.py`, which are the work of `stat` and `verify`.

Which frames are read:
    format_choice: the format of files, without --format.
    selection: what the user selects, and which files and frames can hold it.
    selection_options: options such as --where and --offset.
    row_choice: --limit, --tail and --sample.
    selected_tables: the selected tables of frames in files.
    followed_tables: the same in files that grow (--follow).

`stat`:
    tally: counts over tables of frames.
    latencies: times from requests to their responses.
    quantiles: exact quantiles of integers.

`verify`:
    verifier: verifies files frame by frame.
    opened_formats: which formats are opened inside frames.
    checked_frames: which frames are verified where the user selects some.
    log_verifier: verifies one log, its end, and the files beside its segments.
    segment_scope: which segments of a log are read.
    gap_rules: order and gaps of offsets, and what explains a gap.
    log_offsets: follows offsets from batch to batch; also for `stat`.
    losses: what a damaged log has lost; also for `salvage`.
    finding_printer: prints findings as text or JSON lines.

`report`:
    report_numbers: the numbers of the page.
    report_sample: what other codecs would save.
    report_charts: the charts.
    report_page: the page and the ticket.
    report_scripts: the style and the scripts of the page.

Output of frames:
    frame_writers: text, JSON lines, CSV, templates, Arrow and Parquet.
    decoded_rows: rows with decoded payloads.
    template: --template.
    query: a first query on Parquet files.

Live systems:
    cluster_options: the address and the login of a Kafka cluster.
    tls: TLS of `receive` and `send`.
    fetch_store: the directory that `fetch` writes.
    spool: the directory that `receive` writes.
    durable_directory: what both directories have in common.
    record_readers: the records that `produce` writes.
    resume_file: up to which offset `produce` has written.
    line_blocks: lines of text with their numbers.
    compared_logs: the logs that `diff` compares.

The modules import the modules of `wirescan.cli` beside this folder, and the folders below
`wirescan.cli`.
"""
