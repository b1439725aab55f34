"""The one clock: what a limit may be, parts, pauses, the byte compiled loops look at, progress."""

from __future__ import annotations

import math
import pickle
import threading
import time

import numpy as np
import pytest

from relunorm.clock import Clock, Progress, Teller, as_seconds, overhearing
from relunorm.compiled.jit import kernel
from relunorm.errors import InvalidInputError


class Hand:
    """A clock's hand that the test moves."""

    def __init__(self):
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.mark.parametrize("value", [-1, -1e-300, math.nan, True, np.True_, "1", [1], 1j])
def test_limits_that_are_no_time_are_refused(value):
    with pytest.raises(InvalidInputError, match="time_limit is"):
        Clock(value)


def test_none_and_infinity_are_no_limit():
    for value in (None, math.inf, np.float64("inf")):
        clock = Clock(value)
        assert not clock.limited
        assert not clock.expired()
        assert clock.left() == math.inf
        assert clock.left_or_none() is None


def test_zero_has_expired_at_once():
    assert Clock(0).expired()
    assert Clock(np.int64(0)).left() == 0
    assert as_seconds(np.float32(0.5)) == 0.5


def test_time_passes_until_the_limit():
    hand = Hand()
    clock = Clock(3, hand)
    hand.at += 2
    assert (clock.elapsed(), clock.left(), clock.expired()) == (2, 1, False)
    hand.at += 2
    assert (clock.elapsed(), clock.left(), clock.expired()) == (4, 0, True)


def test_parts_end_with_the_whole_or_sooner():
    hand = Hand()
    clock = Clock(8, hand)
    assert clock.part(share=0.25).left() == 2
    assert clock.part(3).left() == 3
    assert clock.part(30).left() == 8
    assert Clock(clock).left() == 8
    assert Clock(None, hand).part(3).left() == 3
    assert Clock(None, hand).part(share=0.5).left() == math.inf
    late = clock.part(7)
    hand.at += 7.5
    assert late.expired()
    assert not clock.expired()


def test_pauses_do_not_count_for_any_part():
    hand = Hand()
    clock = Clock(8, hand)
    part = clock.part(2)
    with part.pause():
        hand.at += 50
        with clock.pause():
            hand.at += 50
        assert part.left() == 2
    hand.at += 1
    assert (part.left(), clock.left(), clock.elapsed()) == (1, 7, 1)


def test_the_byte_is_set_when_the_time_is_up():
    with Clock(0).watch() as stop:
        assert stop[0] == 1
    with Clock(None).watch() as stop:
        assert stop[0] == 0
    with Clock(1e300).watch() as stop:
        assert stop[0] == 0
    waiting = threading.Event()
    with Clock(0.01).watch() as stop:
        while not stop[0]:
            waiting.wait(0.001)


def _timers():
    return {thread for thread in threading.enumerate() if thread.name == "relunorm-clock"}


def test_the_timer_ends_with_the_watch():
    before = _timers()
    with Clock(3600).watch():
        own = _timers() - before
        assert own
    for thread in own:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_watches_within_a_watch_share_its_timer():
    clock, before = Clock(3600), _timers()
    with clock.watch() as outer:
        for _ in range(3):
            with clock.part(3000).watch() as later, clock.part(0.01).watch() as soon:
                assert len(_timers() - before) == 1
                while not soon[0]:
                    time.sleep(0.001)
                assert not outer[0]
                assert not later[0]


def test_ctrl_c_while_a_timer_starts_leaves_none(monkeypatch):
    clock, start = Clock(3600), threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = _timers()
    with pytest.raises(KeyboardInterrupt), clock.watch():
        pass
    for thread in _timers() - before:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_a_timer_ends_once_all_it_waits_for_is_due():
    before = _timers()
    with Clock(0.01).watch() as stop:
        for thread in _timers() - before:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert stop[0]


def test_a_watch_right_after_another_is_set_in_time():
    for _ in range(200):
        with Clock(3600).watch():
            pass
        clock = Clock(3600)
        with clock.watch():
            pass
        with clock.part(0.001).watch() as stop:
            while not stop[0]:
                time.sleep(0.0005)


def test_a_clock_travels_with_what_is_left():
    hand = Hand()
    clock = Clock(8, hand)
    hand.at += 2
    copy = pickle.loads(pickle.dumps(clock))
    assert 0 < copy.left() <= 6
    assert copy.elapsed() >= 2
    assert not pickle.loads(pickle.dumps(Clock())).limited


def test_a_listener_hears_share_pace_and_facts():
    hand, heard = Hand(), []
    tell = Teller(heard.append, Clock(100, hand))
    hand.at += 4
    tell("counting", 2, 8, found=5)
    tell("counting", 3, 8, at_once=False)  # too soon
    hand.at += 1
    tell("counting", 4, at_once=False)
    assert heard == [
        Progress("counting", 2, 8, 4.0, 12.0, False, {"found": 5}),
        Progress("counting", 4, None, 5.0, 95.0, True, {}),
    ]
    assert [said.left_in_words for said in heard] == ["about 12 s left", "at most 95 s left"]
    tell("parts of different length", 2, 8, even=False)
    assert (heard[-1].left, heard[-1].at_most) == (95.0, True)
    assert heard[0].share == 0.25
    assert heard[1].share is None
    assert Progress("nothing to do", 0, 0).share == 1


def test_compiling_is_announced_once_and_not_counted(monkeypatch):
    monkeypatch.setattr("relunorm.clock._compiled", set())
    hand, heard = Hand(), []
    clock = Clock(5, hand)

    def run():
        hand.at += 30

    for _ in range(2):
        Teller(heard.append, clock).compile("the kernels", run)
    assert (clock.left(), hand.at) == (5, 130)
    assert [said.message for said in heard] == ["loading the kernels"]


def _one_more(x):
    return x + 1


@pytest.mark.parametrize("kept", [False, True])
def test_loading_is_not_called_compiling(kept, monkeypatch):
    """Those who load kernels are asked: they alone know whether a kernel was kept."""
    monkeypatch.setattr("relunorm.clock._compiled", set())
    monkeypatch.setattr("relunorm.compiled.machine.folder", lambda: None)
    made = kernel(_one_more)
    if kept:
        made(1)
    told = ["compiling the sum (once per installation, not counted as time)"] * (not kept)
    heard, rarely, own = [], [], []
    Teller(own.append, Clock()).compile("the sum", lambda: made(1))
    assert [said.message for said in own] == ["loading the sum", *told]
    for into, loading in ((heard, True), (rarely, False)):
        monkeypatch.setattr("relunorm.clock._compiled", set())
        made = made if kept else kernel(_one_more)
        with overhearing(into.append, loading=loading):
            Teller(None, Clock()).compile("the sum", lambda: made(1))  # noqa: B023
    assert [said.message for said in heard] == ["loading the sum", *told]
    assert [said.message for said in rarely] == told
    if not kept:
        with overhearing(heard.append):
            kernel(_one_more)(1)  # nobody's kernel
        assert len(heard) == 2


def test_nobody_need_listen_and_others_are_refused():
    Teller(None, Clock())("counting")
    with pytest.raises(InvalidInputError, match="progress is 3"):
        Teller(3, Clock())  # type: ignore[arg-type]
