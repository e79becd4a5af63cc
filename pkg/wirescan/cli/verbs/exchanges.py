"""`wirescan exchanges`: prints requests with their responses, from captures of packets."""

from __future__ import annotations

import click

from wirescan.cli.exit_codes import Failure
from wirescan.cli.format_command import FOUND, FormatCommand
from wirescan.cli.output import format_path
from wirescan.cli.path_arguments import resolve_paths
from wirescan.cli.verbs.scan import scan
from wirescan.frames.format import Format
from wirescan.frames.registry import formats
from wirescan.reading.captures import find_exchanges, is_of_captures

HELP = """Print requests with their responses and the times between them, from captures of packets.

\b
Examples:
  wirescan exchanges kafka.pcap
  wirescan exchanges kafka.pcap --where 'latency > 100ms'
  wirescan exchanges rpc.pcap --format thrift.exchanges --json --columns time,method,latency
  tcpdump -i any -U -w - port 4222 | wirescan exchanges - --format nats.exchanges
  wirescan stat kafka.pcap --format kafka.exchanges        quantiles for each API

\b
                request                  response
  kafka         a request                with its correlation id
  thrift        a call                   with its seqid
  nats          a message with a reply   the first message to that subject
                subject
  liftbridge    a published message      the ack with its correlation id
                with an ack inbox
  lumberjack    a window of events       the ack of the last event

--format names any format of the protocol. Without it, the connections of the capture decide. Of a
pipe, those at its beginning decide, so a live capture may need --format.
latency is the time in ns from the last byte of the request to the first byte of the
response. It is null without a response.

The other options are those of `wirescan scan`.

Exit codes: 0 good, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


class ExchangesCommand(FormatCommand):
    """The command `wirescan scan` for exchanges of the format that is chosen."""

    def _find_captures(self, context: click.Context) -> Format:
        """Return the format of the exchanges of the chosen protocol."""
        format = super()._find_captures(context)
        if context.params["follow"] and self._list_paths(context) != ["-"]:
            raise Failure(
                "exchanges are not read as a capture grows: a connection may be anywhere in it. "
                "Pipe the capture into `wirescan exchanges -`"
            )
        if not is_of_captures(format):
            paths = resolve_paths(tuple(self._list_paths(context)), format)
            raise Failure(f"{format_path(paths[0])} is no capture of packets")
        exchanges = find_exchanges(format)
        if exchanges is None:
            names = [item.exchange.name for item in formats().values() if item.exchange is not None]
            text = ", ".join(names)
            if context.meta.get(FOUND, False):
                raise Failure(
                    "the connections of the capture do not show one protocol with exchanges: "
                    f"choose one with --format {text}"
                )
            raise Failure(f"{format.name} has no exchanges: give --format {text}")
        return exchanges


exchanges = ExchangesCommand(
    "exchanges",
    callback=scan.callback,
    params=scan.params,
    help=HELP,
    short_help="Print requests with their responses, from captures.",
    writes_columns=True,
    reads_connections=True,
    reads_exchanges=True,
)
