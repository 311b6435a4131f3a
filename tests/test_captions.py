from __future__ import annotations

import pytest
from minipaged_visualizer.captions import SIGNS, caption, captions, letters, listed
from scenes import everything

from minipaged.memory import events as ev

TOLD = [
    (ev.Requested(0, "moon", 14), "A arrives (moon): a prompt of 14 tokens"),
    (ev.Requested(1, "17", 1), "B arrives: a prompt of 1 token"),
    (ev.Forked(0, 1), "A forks: B starts with the same tokens"),
    (
        ev.PrefixHit(3, 0, (0, 1)),
        "D shares blocks 0 and 1: the same prefix, so nothing is computed again",
    ),
    (ev.BlockAllocated(0, 2, 7, "append"), "A takes block 7: its last block is full"),
    (ev.BlockAllocated(0, 0, 7, "prompt"), "A takes block 7: room for its prompt"),
    (ev.BlockAllocated(0, 0, 7, "a hunch of seq 1"), "A takes block 7: a hunch of B"),
    (ev.BlockShared(1, 0, 4), "B shares block 4 with its parent: nothing is copied"),
    (
        ev.BlockCopied(0, 1, 7, 12, "copy-on-write: block 7 is shared by 2"),
        "A copies block 7 to block 12: block 7 is shared by 2 and A wants to write",
    ),
    (
        ev.Prefilled(0, 8, (1, 2, 3), ("a", "b", "c")),
        "A reads 3 tokens: keys and values for positions 8 to 10 are written",
    ),
    (
        ev.Written((0, 1), (5, 6), (" moon", " sea")),
        "A “ moon” and B “ sea”: keys and values written",
    ),
    (
        ev.BlockPublished(4, "h", ""),
        "block 4 is full: who has the same prefix can share it now",
    ),
    (
        ev.BlockEvicted(3, "h", 2),
        "block 3 is evicted to make room for C: its prefix is forgotten",
    ),
    (
        ev.Preempted(1, "recompute", "seq 0 needs 1 blocks, 0 free"),
        "B is preempted: A needs 1 block, 0 free; it will compute its blocks again",
    ),
    (
        ev.Preempted(3, "swap", "seq 0, 1 needs 2 blocks, 1 free"),
        "D is preempted: A and B need 2 blocks, 1 free; its blocks move out",
    ),
    (
        ev.SwappedOut(1, ((3, 0), (4, 1))),
        "B moves out: blocks 3 and 4 to swap blocks 0 and 1",
    ),
    (ev.SwappedIn(1, ((0, 5),)), "B comes back: swap block 0 to block 5"),
    (ev.Sampled((0,), (9,), (" boat",), (-100,)), "next token: A “ boat”"),
    (ev.Finished(0, "stop"), "A is finished: it came to its end"),
    (ev.Finished(0, "length"), "A is finished: it has all the tokens it may have"),
    (ev.Finished(0, "abort"), "A is finished: it was aborted"),
    (ev.Finished(0, "beam"), "A is finished: the search goes on without it"),
    (ev.Finished(0, "search"), "A is finished: the search is over"),
    (
        ev.Attended(1, 29, ev.MEAN_OF_HEADS, (700, 0, 4, 296)),
        "B looks back in layer 29, all heads: "
        "70 % at its block 0, 30 % at its block 3 and below 1 % at its block 2",
    ),
    (
        ev.Attended(0, 0, 2, (1000,)),
        "A looks back in layer 0, head 2: 100 % at its block 0",
    ),
    (
        ev.SlabReserved(0, 8, 8, 6),
        "A reserves blocks 8 to 15, in one piece: room for 6 tokens, used or not",
    ),
    (ev.Released(0, (7, 4), "finished"), "A gives back blocks 7 and 4: it is finished"),
    (
        ev.Released(0, (9,), "reserved, not written"),
        "A gives back block 9: reserved, not written",
    ),
    (
        ev.KernelAccess("decode", (0, 1), (7,), 52, "k = ...", "load", "k_cache", (28,), (0,), 64),
        "decode (0, 1) reads block 7 of k_cache, 64 bytes, line 52",
    ),
    (
        ev.KernelAccess("decode", (2,), (), 60, "", "store", "out", (), (), 128),
        "decode (2) writes out, 128 bytes, line 60",
    ),
]


@pytest.mark.parametrize(("event", "words"), TOLD)
def test_every_event_in_plain_words_with_its_reason(event: ev.Event, words: str):
    assert caption(event).text == words


def test_no_kind_of_event_is_without_words_and_sign():
    assert {event.kind for event, _ in TOLD} == set(ev.EVENT_TYPES) == set(SIGNS)
    assert all(len(sign) == 1 for sign in SIGNS.values())


def test_empty_moves_and_huge_numbers_are_told_too():
    assert caption(ev.SwappedOut(0, ())).text.startswith("A moves out: blocks")
    assert caption(ev.Forked(-1, 2**62)).text.startswith("#-1 forks: #4611686018427387904")
    assert "#999999999" in caption(ev.Preempted(0, "swap", f"seq {'9' * 5000} needs")).text


def test_alike_events_in_a_row_are_one_line():
    evicted = [ev.BlockEvicted(3, "h", 0), ev.BlockEvicted(5, "i", 0), ev.BlockEvicted(6, "j", 1)]
    taken = [ev.BlockAllocated(0, n, n + 10, "prompt") for n in range(3)]
    full = [ev.BlockPublished(10, "k", ""), ev.BlockPublished(11, "l", "")]
    assert [line.text for line in captions([*evicted, *taken, *full])] == [
        "blocks 3 and 5 are evicted to make room for A: their prefix is forgotten",
        "block 6 is evicted to make room for B: its prefix is forgotten",
        "A takes blocks 10 to 12: room for its prompt",
        "blocks 10 and 11 are full: who has the same prefix can share them now",
    ]


def test_different_events_are_never_joined():
    events = [event for event, _ in TOLD]
    assert [line.text for line in captions(events)] == [words for _, words in TOLD]


def test_long_lists_are_cut():
    assert caption(ev.Released(0, tuple(range(0, 80, 2)), "finished")).text == (
        "A gives back blocks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 28 more: it is finished"
    )
    assert listed([1, 2, 3], limit=2) == "1, 2 and 3"
    assert listed([]) == ""


def test_every_sequence_has_a_letter_of_its_own():
    names = [letters(seq) for seq in range(5000)]
    assert len(set(names)) == len(names)
    assert names[:3] + names[25:28] + names[701:703] == [
        "A",
        "B",
        "C",
        "Z",
        "AA",
        "AB",
        "ZZ",
        "AAA",
    ]


def test_routine_is_what_happens_in_nearly_every_step():
    told = [line for step in everything().steps for line in captions(step.events)]
    assert {line.sign for line in told if line.routine} == {"~", "#", "›"}
    assert {"=", "+", "»", "!", "‖", "↓", "↑", "■", "-"} <= {
        line.sign for line in told if not line.routine
    }
