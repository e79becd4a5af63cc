"""A client of Liftbridge over NATS: Publisher and Subscriber, run on a connection of nats-py.

nats-py comes with the extra `nats`. It reconnects by itself when a connection is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package
from wirescan.frames.table import FrameTable
from wirescan.liftbridge.live.publisher import SETTLING, Publisher, Receipt, Sending
from wirescan.liftbridge.live.subjects import list_subjects
from wirescan.liftbridge.live.subscriber import Subscriber

with name_package("nats", __name__, "'wirescan[nats]'"):
    import nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.errors import SlowConsumerError

SERVERS = "nats://127.0.0.1:4222"
logger = logging.getLogger(__name__)


class Client:
    """A connection to NATS, and through it to Liftbridge: an asynchronous context manager.

    servers: one URL, or a list. timeout: seconds that an ack may take. stray: called with each
    `Receipt` that no call waits for: late, duplicate and unknown acks, refusals with
    AckPolicy.NONE, and bytes that are not an ack. By default they are logged as warnings. options:
    those of `nats.connect`, such as tls, user, password, token and user_credentials. error_cb and
    closed_cb must be coroutine functions.

        async with liftbridge.Client("nats://127.0.0.1:4222") as client:
            receipt = await client.publish("orders", b"value", key=b"key", partitions=4)
            async for table in await client.subscribe("orders", partitions=4):
                ...

    A failure in NATS is raised as nats.errors.Error. For one event loop.
    """

    def __init__(
        self,
        servers: str | list[str] = SERVERS,
        *,
        timeout: float = 5.0,
        stray: Callable[[Receipt], None] | None = None,
        **options: Any,
    ):
        self._servers = servers
        self._timeout = timeout
        self._options = options
        self._stray = _log if stray is None else stray
        self._error_callback = options.pop("error_cb", None)
        self._closed_callback = options.pop("closed_cb", None)
        for callback in (self._error_callback, self._closed_callback):
            if callback is not None and not asyncio.iscoroutinefunction(callback):
                raise TypeError("error_cb and closed_cb must be coroutine functions")
        self._acks: list[bytes] = []  # payloads of the inbox that are not read yet
        self._waiting: dict[str, asyncio.Future[Receipt | None]] = {}
        self._feeds: dict[Subscription, _Feed] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def connect(self) -> Client:
        """Connect, and subscribe to an inbox for acks."""
        self._loop = asyncio.get_running_loop()
        try:
            self._nats = await nats.connect(
                self._servers,
                error_cb=self._on_error,
                closed_cb=self._on_closed,
                **self._options,
            )
        except nats.errors.Error as error:
            _escape(error)
            raise
        self._publisher = Publisher(
            inbox=self._nats.new_inbox(), timeout=self._timeout, clock=self._loop.time
        )
        await self._nats.subscribe(self._publisher.inbox, cb=self._on_ack)
        return self

    async def publish(self, subject: str, value: Any, **message: Any) -> Receipt | None:
        """Publish a message, and wait for its ack.

        message: the arguments of `Publisher.publish`: key, headers, partitions, partition,
        ack_policy, expected_offset, correlation_id.

        Returns the receipt; None with AckPolicy.NONE, because no ack comes. If several streams have
        the subject, the first ack counts.

        Raises PublishError if Liftbridge refuses the message. Raises TimeoutError if no ack comes
        in time; then the message may be stored or not.
        """
        (result,) = await self._send([self._publisher.publish(subject, value, **message)])
        if isinstance(result, BaseException):
            raise result
        return result

    async def publish_many(
        self, subject: str, values: Any, *, return_exceptions: bool = False, **messages: Any
    ) -> list[Any]:
        """Publish messages, and wait for all their acks.

        messages: the arguments of `Publisher.publish_many`. The timeout is for all messages
        together, so do not pass more than can be acknowledged within it.

        Returns a `Receipt` or None for each message, in their order. With return_exceptions, the
        errors are in the place of the receipts.

        Raises ExceptionGroup of the errors that `publish` raises, if any message failed and
        return_exceptions is False.
        """
        results = await self._send(self._publisher.publish_many(subject, values, **messages))
        errors = [result for result in results if isinstance(result, Exception)]
        if errors and not return_exceptions:
            raise ExceptionGroup(
                f"{len(errors)} of {len(results)} messages are not acknowledged", errors
            )
        return results

    async def subscribe(
        self, subject: str, *, partitions: int = 1, queue: str = "", **options: Any
    ) -> AsyncIterator[FrameTable]:
        """Subscribe, and return an iterator of tables as they arrive.

        The iterator ends when the client is closed, after the table of the remaining messages.

        partitions: of the stream. Each partition is a subject; the messages of different partitions
        are in the order of arrival. queue: a group of subscribers that share the messages. options:
        those of `Subscriber`: count, bytes, seconds, format, errors.

        The iterator raises FrameError if errors is "strict". After the messages that have arrived,
        it raises nats.errors.SlowConsumerError if tables were taken so slowly that messages were
        dropped, and nats.errors.ConnectionClosedError if nats-py stopped reconnecting.
        """
        subjects = list_subjects(subject, partitions)
        feed = _Feed(Subscriber(clock=self._loop.time, **options))
        for name in subjects:
            self._feeds[await self._nats.subscribe(name, queue, cb=feed.take)] = feed
        await self._nats.flush()
        return self._iterate_tables(feed)

    async def close(self) -> None:
        """Send what is not sent yet, receive what has arrived, and close the connection.

        A call that still waits for an ack raises ConnectionError.
        """
        for feed in self._feeds.values():
            feed.close()
        # The stack releases all callers, whatever fails.
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._release)
            stack.push_async_callback(self._nats.close)
            if self._nats.is_connected:
                await self._nats.drain()

    def _release(self) -> None:
        """Release the callers that wait for acks and messages, after the last one has come."""
        self._read()
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the client is closed"))
        for feed in self._feeds.values():
            feed.finished = True
            feed.changed.set()

    async def __aenter__(self) -> Client:
        return await self.connect()

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _send(self, sendings: list[Sending]) -> list[Receipt | None | BaseException]:
        """Send messages, and wait for their acks.

        Returns for each message its receipt, None if no ack will come, or the error.
        """
        futures: dict[str, asyncio.Future[Receipt | None]] = {
            sending.correlation_id: self._loop.create_future() for sending in sendings
        }
        self._waiting |= futures
        try:
            for sending, future in zip(sendings, futures.values()):
                try:
                    await self._nats.publish(sending.subject, sending.payload)
                except nats.errors.Error as error:
                    self._publisher.forget(sending.correlation_id)
                    if not future.done():
                        future.set_exception(error)
                else:
                    if not sending.acknowledged:
                        future.set_result(None)
            if self._timer is None:
                self._expire()
            return await asyncio.gather(*futures.values(), return_exceptions=True)
        finally:
            for name in futures:
                self._waiting.pop(name, None)

    async def _on_ack(self, message: Msg) -> None:
        """Collect acks that arrive together, to read them together."""
        self._acks.append(message.data)
        if len(self._acks) == 1:
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        payloads = self._acks
        self._acks = []
        if payloads:
            self._settle(self._publisher.receive(payloads))

    def _expire(self) -> None:
        self._settle(self._publisher.expire())
        deadline = self._publisher.deadline
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._expire)

    def _settle(self, receipts: list[Receipt]) -> None:
        for receipt in receipts:
            future = self._waiting.get(receipt.correlation_id)
            if future is None or future.done() or receipt.outcome not in SETTLING:
                self._loop.call_soon(self._stray, receipt)
            elif receipt.error is not None:
                future.set_exception(receipt.error)
            else:
                future.set_result(receipt)

    async def _iterate_tables(self, feed: _Feed) -> AsyncIterator[FrameTable]:
        subscriber = feed.subscriber
        try:
            while True:
                ended = feed.finished or feed.error is not None
                table = subscriber.flush() if ended else subscriber.poll()
                if table is not None:
                    feed.taken.set()
                    yield table
                elif feed.error is not None:
                    raise feed.error
                elif feed.finished:
                    return
                else:
                    feed.changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(subscriber.deadline):
                            await feed.changed.wait()
        finally:
            for subscription in [key for key, value in self._feeds.items() if value is feed]:
                del self._feeds[subscription]
                with contextlib.suppress(nats.errors.Error):  # the subscription may have ended
                    await subscription.unsubscribe()

    async def _on_error(self, error: Exception) -> None:
        """Pass on an error of nats-py that no call raises."""
        _escape(error)
        feed = self._feeds.get(error.sub) if isinstance(error, SlowConsumerError) else None
        if feed is not None:
            feed.error = error
            feed.changed.set()
        elif self._error_callback is not None:
            await self._error_callback(error)
        else:
            logger.warning("NATS: %s", error)

    async def _on_closed(self) -> None:
        """End the feeds, unless `close` has closed the connection."""
        for feed in self._feeds.values():
            if not feed.closing and feed.error is None:
                feed.error = nats.errors.ConnectionClosedError()
                feed.changed.set()
        if self._closed_callback is not None:
            await self._closed_callback()


class _Feed:
    """A Subscriber between nats-py, which adds messages, and an iterator, which takes tables.

    While a table waits to be taken, no more messages are added. Then nats-py holds what arrives, up
    to its limits.
    """

    def __init__(self, subscriber: Subscriber):
        self.subscriber = subscriber
        self.changed = asyncio.Event()  # the iterator has something to do
        self.taken = asyncio.Event()  # a table was taken, or none will wait any more
        self.error: Exception | None = None  # what the iterator raises at its end
        self.finished = False
        self.closing = False

    async def take(self, message: Msg) -> None:
        """Add a message, and wait while a batch is full."""
        self.subscriber.receive([message.data])
        if self.subscriber.held == 1 or self.subscriber.ready:
            self.changed.set()
        while self.subscriber.ready and not self.closing:
            self.taken.clear()
            await self.taken.wait()

    def close(self) -> None:
        """Add all further messages without waiting."""
        self.closing = True
        self.taken.set()


def _escape(error: Exception) -> None:
    """Escape the server's text in an error, so that it is safe to print."""
    error.args = tuple(make_visible(item) if isinstance(item, str) else item for item in error.args)


def _log(receipt: Receipt) -> None:
    logger.warning("%s", receipt)
