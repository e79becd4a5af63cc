"""The address of a Kafka cluster and the login, as options of commands, and errors of brokers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from wirescan.cli.completion import complete_file
from wirescan.cli.exit_codes import Damage, Failure
from wirescan.cli.output import format_path
from wirescan.kafka.client.sasl import MECHANISMS
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

if TYPE_CHECKING:
    from wirescan.kafka.client import Client
    from wirescan.kafka.client.topic_ranges import ClusterAddress

TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")  # names that brokers accept
PASSWORD = "WIRESCAN_PASSWORD"
Command = Callable[..., Any]

cluster_argument = click.argument("bootstrap", metavar="HOST:PORT[,...]")


def login_options(command: Command) -> Command:
    """Add the options of TLS and of the login.

    The command receives `make_address`, a function that returns the `ClusterAddress` of a
    "HOST:PORT[,...]" with this login.
    """

    @click.option("--tls", is_flag=True, help="Use TLS, and trust the authorities of this system.")
    @click.option(
        "--tls-ca",
        metavar="FILE",
        shell_complete=complete_file,
        help="Use TLS, and trust the authorities in FILE (PEM).",
    )
    @click.option("--sasl", type=click.Choice(MECHANISMS), help="Log in with this mechanism.")
    @click.option("--user", metavar="NAME", help="The user name for --sasl.")
    @click.option(
        "--password-file",
        metavar="FILE",
        shell_complete=complete_file,
        help=f"Read the password from the first line of FILE. {PASSWORD} in the environment works "
        "too.",
    )
    @wraps(command)
    def run(
        *arguments: Any,
        tls: bool,
        tls_ca: str | None,
        sasl: str | None,
        user: str | None,
        password_file: str | None,
        **options: Any,
    ) -> Any:
        login = parse_login(sasl, user, password_file)

        def make_address(bootstrap: str) -> ClusterAddress:
            from wirescan.kafka.client.topic_ranges import ClusterAddress

            return ClusterAddress(bootstrap, tls_ca or tls, login)

        return command(*arguments, make_address=make_address, **options)

    return run


def cluster_options(command: Command) -> Command:
    """Add the options of TLS and of the login.

    The command needs `cluster_argument` too. It receives both as `cluster`, a `ClusterAddress`.
    """

    @login_options
    @wraps(command)
    def run(
        *arguments: Any,
        bootstrap: str,
        make_address: Callable[[str], ClusterAddress],
        **options: Any,
    ) -> Any:
        return command(*arguments, cluster=make_address(bootstrap), **options)

    return run


def check_topic(name: str) -> None:
    """Raise click.UsageError for a name that no topic can have."""
    if not TOPIC.fullmatch(name):
        raise click.UsageError(f"no topic can be named {format_path(name)!r}")


def identify_topic(client: Client, topic: str) -> dict[str, Any]:
    """Return the ids of the cluster and of the topic. Raises BrokerError for an unknown topic."""
    metadata = client.metadata([topic])
    if topic not in metadata.topics:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
    return {"cluster": metadata.cluster_id, "topic id": metadata.topics[topic].id.hex()}


def parse_login(
    sasl: str | None, user: str | None, password_file: str | None
) -> tuple[str, str, str] | None:
    """Return (mechanism, user, password) from the options; None without --sasl.

    Raises click.UsageError, Failure for a password that is not UTF-8, and OSError.
    """
    if sasl is None:
        if user or password_file:
            raise click.UsageError("--user and --password-file are for --sasl")
        return None
    if user is None:
        raise click.UsageError("--sasl needs --user")
    if password_file is not None:
        try:
            with open(password_file, encoding="utf-8") as file:
                return sasl, user, file.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise Failure(f"{format_path(password_file)} is not UTF-8") from None
    if PASSWORD not in os.environ:
        raise click.UsageError(f"--sasl needs --password-file, or {PASSWORD} in the environment")
    return sasl, user, os.environ[PASSWORD]


@contextmanager
def report_broker_errors() -> Iterator[None]:
    """Turn an error of a broker into one line and an exit code."""
    try:
        yield
    except BrokerError as error:
        is_damage = error.code == ErrorCode.OFFSET_OUT_OF_RANGE
        raise (Damage if is_damage else Failure)(str(error)) from None
