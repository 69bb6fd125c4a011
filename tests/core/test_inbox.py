"""The inbox hands everything over in order and pushes back on who only waits."""

import threading

from sensorium.core.inbox import Inbox


def test_everything_is_taken_at_once_and_in_order() -> None:
    inbox = Inbox[int]()
    inbox.put(1)
    inbox.put_now(2)
    assert inbox.take(None) == [1, 2]
    assert inbox.take(0.0) == []


def test_a_full_inbox_makes_put_wait_but_not_put_now() -> None:
    inbox = Inbox[int](capacity=1)
    inbox.put(1)
    thread = threading.Thread(target=inbox.put, args=(3,))
    thread.start()
    inbox.put_now(2)
    taken = inbox.take(None)
    while 3 not in taken:
        taken += inbox.take(None)
    thread.join()
    assert taken == [1, 2, 3]


def test_close_wakes_the_taker_and_the_waiting_putter() -> None:
    inbox = Inbox[int](capacity=1)
    inbox.put(1)
    putter = threading.Thread(target=inbox.put, args=(2,))
    putter.start()
    inbox.close()
    putter.join()
    empty = Inbox[int]()
    taken: list[list[int]] = []
    taker = threading.Thread(target=lambda: taken.append(empty.take(None)))
    taker.start()
    empty.close()
    taker.join()
    assert inbox.closed
    assert taken == [[]]
