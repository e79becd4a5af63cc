"""Finds answers, such as kafka.responses, whose columns follow from the frames that they answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wirescan.core.row_arrays import join_rows, select_rows
from wirescan.files.source import view_of
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, join, make_empty
from wirescan.pcap.constants import Direction
from wirescan.pcap.extraction.frame_times import QUESTION
from wirescan.pcap.extraction.sent_frames import make_sent_frames, read_sent
from wirescan.pcap.extraction.stream_scanner import StreamScanner
from wirescan.pcap.extraction.waiting_frames import WaitingFrames


class AnswerScanner:
    """Finds the frames of a format whose columns follow from the frames that they answer.

    It is a `StreamScanner` of both. It keeps frames without an answer within the limits of
    waiting_frames.py.
    """

    def __init__(self, format: Format, *, check: bool, limits: Limits):
        assert format.conversation is not None
        assert format.conversation.answers is not None and format.conversation.label is not None
        asked = format_of(format.conversation.answers)
        self._label = format.conversation.label
        self._measure_waiting = format.conversation.measure_waiting or _measure_frames
        self._asked_format = asked
        self._asked = StreamScanner(asked, check=check, limits=limits, holds="connection")
        self._answers = StreamScanner(format, check=check, limits=limits, asked=self._asked)
        self._waiting = WaitingFrames(make_empty(asked))

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the answers, and the bytes that are done with: see `StreamScanner.scan`."""
        _, answers, done = self.scan_both(streams, more=more, released=released)
        return answers, done

    def scan_both(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, FrameTable, np.ndarray]:
        """Return the questions, the answers, and the bytes that are done with."""
        new, asked_done = self._asked.scan(streams, more=more, released=released)
        answers, done = self._answers.scan(streams, more=more, released=released)
        done = np.where(streams["kind"] == Direction.TO_SERVER, asked_done, done)
        if not len(answers):
            if more:
                self._keep(new, read_sent(new, 0), ~new.bad)
            buffers = (*answers.buffers, view_of(np.zeros(0, np.uint8)))
            return new, replace(answers, buffers=buffers), done
        answers_sent = read_sent(answers, 0)
        waiting, waiting_sent = self._waiting.take(np.unique(answers_sent["connection"]))
        sent = join_rows([waiting_sent, read_sent(new, 0)])
        is_new = np.arange(len(sent)) >= len(waiting)
        table = join([waiting, replace(new, outer=None, format=self._asked_format)])
        answered = make_sent_frames(answers, answers_sent, np.ones(len(answers), bool))
        labelled = self._label(answered, make_sent_frames(table, sent, is_new))
        rows = labelled.rows
        if more:
            self._keep(table, sent, labelled.is_awaited)
        is_known = labelled.asked >= 0
        questions = np.zeros(int(is_known.sum()), QUESTION)
        questions["start"] = rows["start"][is_known]
        questions["time"] = sent["time_end"][labelled.asked[is_known]]
        questions = select_rows(questions, np.argsort(questions["start"], kind="stable"))
        buffers = (*answers.buffers, view_of(questions.view(np.uint8)))
        return new, replace(answers, rows=rows, buffers=buffers), done

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: see `StreamScanner.forget`."""
        self._asked.forget(connections)
        self._answers.forget(connections)
        self._waiting.forget(connections)

    def _keep(self, asked: FrameTable, sent: np.ndarray, is_awaited: np.ndarray) -> None:
        """Keep copies of the frames that may still be answered."""
        sizes = self._measure_waiting(asked)
        kept = np.flatnonzero(is_awaited & (sizes >= 0))
        frames = replace(
            asked, rows=select_rows(asked.rows, kept), outer=None, format=self._asked_format
        )
        self._waiting.add(frames, select_rows(sent, kept), sizes[kept])


def _measure_frames(asked: FrameTable) -> np.ndarray:
    """Return how many bytes of each frame are kept while it waits: all."""
    return asked.rows["size"].astype(np.int64)
