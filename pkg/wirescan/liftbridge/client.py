"""Publishes to Liftbridge and subscribes, over NATS: Publisher and Subscriber, and the connection of nats-py.

nats-py comes with the extra `nats`; it connects again by itself when a connection is lost.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import SlowConsumerError

from wirescan.liftbridge.publisher import SETTLING, Publisher, Receipt, Sending
from wirescan.liftbridge.subjects import subjects_of
from wirescan.liftbridge.subscriber import Subscriber
from wirescan.table import FrameTable

__all__ = ["Client"]

SERVERS = "nats://127.0.0.1:4222"
logger = logging.getLogger(__name__)


class Client:
    """A connection to NATS, and through it to Liftbridge: an asynchronous context manager.

    servers: one URL, or a list. timeout: seconds that an ack may take. stray: called with each `Receipt` that no call
    waits for: late, duplicate and unknown acks, refusals with AckPolicy.NONE, bytes that are none; by default they are
    logged as warnings. options: as of `nats.connect`: tls, user, password, token, user_credentials ...

        async with liftbridge.Client("nats://127.0.0.1:4222") as client:
            receipt = await client.publish("orders", b"value", key=b"key", partitions=4)
            async for table in await client.subscribe("orders", partitions=4):
                ...

    What fails in NATS is raised as nats.errors.Error. For one event loop.
    """

    def __init__(self, servers: str | list[str] = SERVERS, *, timeout: float = 5.0,
                 stray: Callable[[Receipt], None] | None = None, **options: Any):
        self._servers, self._timeout, self._options = servers, timeout, options
        self._stray = _log if stray is None else stray
        self._told, self._told_end = options.pop("error_cb", None), options.pop("closed_cb", None)
        if any(one is not None and not asyncio.iscoroutinefunction(one) for one in (self._told, self._told_end)):
            raise TypeError("error_cb and closed_cb are coroutine functions")
        self._acks: list[bytes] = []                        # payloads of the inbox that wait to be read
        self._waiting: dict[str, asyncio.Future[Receipt]] = {}
        self._feeds: dict[Subscription, _Feed] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def connect(self) -> Client:
        """Connects, and subscribes to an inbox for acks."""
        self._loop = asyncio.get_running_loop()
        self._nats = await nats.connect(self._servers, error_cb=self._failed, closed_cb=self._ended,
                                        **self._options)
        self._publisher = Publisher(inbox=self._nats.new_inbox(), timeout=self._timeout, clock=self._loop.time)
        await self._nats.subscribe(self._publisher.inbox, cb=self._heard)
        return self

    async def publish(self, subject: str, value: Any, **message: Any) -> Receipt | None:
        """Publishes a message, and waits for its ack; None with AckPolicy.NONE, for which none comes.

        message: as of `Publisher.publish`: key, headers, partitions, partition, ack_policy, expected_offset,
        correlation_id. Raises PublishError where Liftbridge refuses it, TimeoutError where no ack comes in time: it is
        stored or not. With several streams on a subject, the first ack counts.
        """
        (result,) = await self._send([self._publisher.publish(subject, value, **message)])
        if isinstance(result, BaseException):
            raise result
        return result

    async def publish_many(self, subject: str, values: Any, *, return_exceptions: bool = False,
                           **messages: Any) -> list[Any]:
        """Publishes messages, and waits for all their acks: a `Receipt` for each, in their order, or None.

        messages: as of `Publisher.publish_many`. At a time no more than are acknowledged within the timeout, which is
        for all of them. Raises ExceptionGroup, of what `publish` raises, if any failed; with `return_exceptions` these
        stand in the place of their receipts.
        """
        results = await self._send(self._publisher.publish_many(subject, values, **messages))
        failed = [one for one in results if isinstance(one, Exception)]
        if failed and not return_exceptions:
            raise ExceptionGroup(f"{len(failed)} of {len(results)} messages are not acknowledged", failed)
        return results

    async def subscribe(self, subject: str, *, partitions: int = 1, queue: str = "",
                        **options: Any) -> AsyncIterator[FrameTable]:
        """Subscribes, and gives tables as they come, until the client is closed; then what is left.

        partitions: of the stream; each is a subject, and between them the order is that of arrival. queue: a group of
        subscribers, each of which gets a part. options: as of `Subscriber`: count, bytes, seconds, format, errors.
        The tables raise FrameError if errors are "strict"; and, behind what has arrived, nats.errors.SlowConsumerError
        where they were taken so slowly that messages had to be dropped, and nats.errors.ConnectionClosedError where
        nats-py gave up to connect again.
        """
        subjects = subjects_of(subject, partitions)
        feed = _Feed(Subscriber(clock=self._loop.time, **options))
        for one in subjects:
            self._feeds[await self._nats.subscribe(one, queue, cb=feed.take)] = feed
        await self._nats.flush()
        return self._tables(feed)

    async def close(self) -> None:
        """Sends what is not sent yet, takes what has arrived, and closes the connection. Whoever waits for an ack still
        has a ConnectionError."""
        for feed in self._feeds.values():
            feed.close()
        async with contextlib.AsyncExitStack() as stack:        # nobody waits for ever, whatever fails
            stack.callback(self._release)
            stack.push_async_callback(self._nats.close)
            if self._nats.is_connected:
                await self._nats.drain()

    def _release(self) -> None:
        """Ends what waits for acks and for messages, when nothing comes any more."""
        self._read()
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the client is closed"))
        for feed in self._feeds.values():
            feed.finished = True
            feed.news.set()

    async def __aenter__(self) -> Client:
        return await self.connect()

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _send(self, sendings: list[Sending]) -> list[Any]:
        """Sends messages: for each its receipt, None where there is none to wait for, or what went wrong."""
        futures = {one.correlation_id: self._loop.create_future() for one in sendings}
        self._waiting |= futures
        try:
            for one, future in zip(sendings, futures.values()):
                try:
                    await self._nats.publish(one.subject, one.payload)
                except nats.errors.Error as error:
                    self._publisher.forget(one.correlation_id)
                    if not future.done():
                        future.set_exception(error)
                else:
                    if not one.acknowledged:
                        future.set_result(None)
            if self._timer is None:
                self._expire()
            return await asyncio.gather(*futures.values(), return_exceptions=True)
        finally:
            for name in futures:
                self._waiting.pop(name, None)

    async def _heard(self, message: Msg) -> None:
        """An ack. What arrives together is read together."""
        self._acks.append(message.data)
        if len(self._acks) == 1:
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        payloads, self._acks = self._acks, []
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

    async def _tables(self, feed: _Feed) -> AsyncIterator[FrameTable]:
        subscriber = feed.subscriber
        try:
            while True:
                ended = feed.finished or feed.lost is not None
                table = subscriber.flush() if ended else subscriber.poll()
                if table is not None:
                    feed.room.set()
                    yield table
                elif feed.lost is not None:
                    raise feed.lost
                elif feed.finished:
                    return
                else:
                    feed.news.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(subscriber.deadline):
                            await feed.news.wait()
        finally:
            for one in [one for one, its in self._feeds.items() if its is feed]:
                del self._feeds[one]
                with contextlib.suppress(nats.errors.Error):    # it has ended already
                    await one.unsubscribe()

    async def _failed(self, error: Exception) -> None:
        """What nats-py says of errors that no call raises."""
        feed = self._feeds.get(error.sub) if isinstance(error, SlowConsumerError) else None
        if feed is not None:
            feed.lost = error
            feed.news.set()
        elif self._told is not None:
            await self._told(error)
        else:
            logger.warning("NATS: %s", error)

    async def _ended(self) -> None:
        """The connection is closed: by `close`, or since nats-py has given it up."""
        for feed in self._feeds.values():
            if not feed.closing and feed.lost is None:
                feed.lost = nats.errors.ConnectionClosedError()
                feed.news.set()
        if self._told_end is not None:
            await self._told_end()


class _Feed:
    """A Subscriber between nats-py, which gives it messages, and an iterator that takes its tables. While a table waits
    to be taken, no more is given: then nats-py holds what arrives, up to its limits."""

    def __init__(self, subscriber: Subscriber):
        self.subscriber = subscriber
        self.news, self.room = asyncio.Event(), asyncio.Event()
        self.lost: Exception | None = None
        self.finished = self.closing = False

    async def take(self, message: Msg) -> None:
        self.subscriber.receive([message.data])
        if self.subscriber.held == 1 or self.subscriber.ready:
            self.news.set()
        while self.subscriber.ready and not self.closing:
            self.room.clear()
            await self.room.wait()

    def close(self) -> None:
        """Takes all that is given from now on."""
        self.closing = True
        self.room.set()


def _log(receipt: Receipt) -> None:
    logger.warning("%s", receipt)
