"""Files of requests: four formats read, and everything that can be wrong told in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minipaged.engine.config import EngineConfig
from minipaged.errors import WorkloadError
from minipaged.lab.length_files import MAX_LINE, read_workload
from minipaged.lab.simulator import simulate
from minipaged.lab.workloads import MAX_TEXT, LabRequest
from minipaged.memory.kv_cache_manager import KVCacheManager

HEADER = b"prompt_tokens,new_tokens,arrival\n"
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


def read(tmp_path: Path, content: bytes) -> list[LabRequest]:
    path = tmp_path / "requests.txt"
    path.write_bytes(content)
    return list(read_workload(path))


def mooncake(hash_ids: bytes) -> bytes:
    return b'{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": %s}\n' % hash_ids


def shown(requests: list[LabRequest]) -> list[tuple[float, int, int]]:
    return [(round(r.arrival, 6), r.num_prompt_tokens, r.num_new_tokens) for r in requests]


# --- what is read


def test_lengths_as_csv(tmp_path: Path) -> None:
    content = HEADER + b"5,7,0\n6,8,1.5\n"
    assert shown(read(tmp_path, content)) == [(0.0, 5, 7), (1.5, 6, 8)]


def test_lengths_without_times_all_come_at_once(tmp_path: Path) -> None:
    content = b"new_tokens,user,prompt_tokens\n7,ann,5\n8,bob,6\n"
    assert shown(read(tmp_path, content)) == [(0.0, 5, 7), (0.0, 6, 8)]


def test_columns_that_say_nothing_may_have_any_names(tmp_path: Path) -> None:
    content = b"x,prompt_tokens,new_tokens,x,,\n1,5,7,2,,\n"
    assert shown(read(tmp_path, content)) == [(0.0, 5, 7)]


def test_lengths_as_json_lines(tmp_path: Path) -> None:
    content = b'{"prompt_tokens": 5, "new_tokens": 7}\n\n{"new_tokens": 8, "prompt_tokens": 6}'
    assert shown(read(tmp_path, content)) == [(0.0, 5, 7), (0.0, 6, 8)]


def test_other_peoples_line_ends_marks_and_quotes_are_read(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf"prompt_tokens", new_tokens\r\n"5", 7\r\n\r\n6,8'
    assert shown(read(tmp_path, content)) == [(0.0, 5, 7), (0.0, 6, 8)]


def test_empty_lines_before_the_first_request_say_nothing_about_the_format(tmp_path: Path) -> None:
    for content in (
        b'\n  \n{"prompt_tokens": 5, "new_tokens": 7}\n',
        b"\r\n" + HEADER + b"5,7,0\n",
    ):
        assert shown(read(tmp_path, content)) == [(0.0, 5, 7)]


@pytest.mark.parametrize("hash_ids", [b"null", b"[]"])
def test_a_mooncake_request_may_have_no_hash_ids(tmp_path: Path, hash_ids: bytes) -> None:
    assert [request.token_ids for request in read(tmp_path, mooncake(hash_ids))] == [None]


def test_an_azure_trace_begins_at_its_first_request(tmp_path: Path) -> None:
    content = AZURE + (
        b"2023-11-16 18:17:03.9799600,4808,10\n"
        b"2023-11-16 18:17:04.0319600,3180,8\n"
        b"2023-11-17 00:00:00,110,27\n"
    )
    assert shown(read(tmp_path, content)) == [
        (0.0, 4808, 10),
        (0.052, 3180, 8),
        (20576.02004, 110, 27),
    ]


def test_an_azure_trace_of_2024_has_a_time_zone(tmp_path: Path) -> None:
    content = AZURE + b"2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2,6\n"
    assert shown(read(tmp_path, content)) == [(0.0, 2162, 5), (0.99007, 2, 6)]


def test_a_mooncake_traces_hash_ids_become_tokens(tmp_path: Path) -> None:
    content = (
        b'{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [46, 47, 9]}\n'
        b'{"timestamp": 2500, "input_length": 1024, "output_length": 7, "hash_ids": [46, 48]}\n'
    )
    first, second = requests = read(tmp_path, content)
    assert shown(requests) == [(0.0, 1030, 5), (2.5, 1024, 7)]
    assert first.token_ids is not None
    assert second.token_ids is not None
    assert (len(first.token_ids), len(second.token_ids)) == (1030, 1024)
    assert first.token_ids[:512] == second.token_ids[:512]
    assert not set(first.token_ids[512:]) & set(second.token_ids[512:])


def test_a_mooncake_trace_drives_the_prefix_cache(tmp_path: Path) -> None:
    content = b"".join(
        b'{"timestamp": %d, "input_length": %d, "output_length": 2, "hash_ids": %s}\n' % row
        for row in [(0, 600, b"[1, 2]"), (90000, 1100, b"[1, 3]"), (180000, 1030, b"[1, 3, 4]")]
    )
    config = EngineConfig(num_blocks=200)
    result = simulate(read(tmp_path, content), config, KVCacheManager(200, 16))
    # Ids may be fewer than blocks: the rest of a prompt (here 76 tokens) is nobody else's.
    assert [request.num_cached_tokens for request in result.requests] == [0, 512, 1024]


def test_zero_new_tokens_are_one_as_a_model_always_draws(tmp_path: Path) -> None:
    assert shown(read(tmp_path, b"prompt_tokens,new_tokens\n5,0\n")) == [(0.0, 5, 1)]


# --- what is refused


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "empty"),
        (b"\n\n", 2, "without a request"),
        (HEADER, 1, "without a request"),
        (b"prompt_tokens\n5\n", 1, "new_tokens missing"),
        (b"a,b,c\n1,2,3\n", 1, "prompt_tokens, new_tokens missing"),
        (b"TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,1\n", 1, "GeneratedTokens missing"),
        (HEADER + b"5,7,0\n5,7\n", 3, "2 columns, the header has 3"),
        (HEADER + b"5,7,0\n5,7,1,9\n", 3, "4 columns, the header has 3"),
        (HEADER + b"5,-7,0\n", 2, "new_tokens is '-7'"),
        (HEADER + b"0,7,0\n", 2, "prompt_tokens is 0, expected a whole number from 1"),
        (HEADER + b"five,7,0\n", 2, "prompt_tokens is 'five'"),
        (HEADER + b"5.5,7,0\n", 2, "prompt_tokens is '5.5'"),
        (HEADER + b",7,0\n", 2, "prompt_tokens is ''"),
        (HEADER + b"nan,7,0\n", 2, "prompt_tokens is 'nan'"),
        (HEADER + b"5,%d,0\n" % (MAX_TEXT + 1), 2, f"from 0 to {MAX_TEXT}"),
        (HEADER + b"5,1" + b"0" * 5000 + b",0\n", 2, "new_tokens is '1000"),
        (HEADER + b"%d,1,0\n" % MAX_TEXT, 2, f"more than a text may have, {MAX_TEXT}"),
        (HEADER + b"5,7,nan\n", 2, "arrival is 'nan'"),
        (HEADER + b"5,7,inf\n", 2, "arrival is 'inf'"),
        (HEADER + b"5,7,-1\n", 2, "arrival is '-1'"),
        (HEADER + b"5,7,noon\n", 2, "arrival is 'noon'"),
        (HEADER + b"5,7,1e300\n", 2, "arrival is '1e300'"),
        (HEADER + b"5,7,4\n5,7,3\n", 3, "arrives at 3 s, the one before it at 4 s"),
        (HEADER + b'5,"7,0\n5,7,1\n', 3, "no CSV"),
        (HEADER + b"5,7,0\n5,7,\xff\n", 3, "bad UTF-8"),
        (b"\x80\x02\x00\x01\x7f" * 99, 1, "bad UTF-8"),
        (b"\x00\x01\x02\x03" * 99, 1, ""),
        (b"x" * (MAX_LINE + 9), 1, f"longer than {MAX_LINE} bytes"),
        (AZURE + b"yesterday,1,2\n", 2, "expected a time like"),
        (AZURE + b"2023-02-30 18:17:03.9799600,1,2\n", 2, "expected a time like"),
        (AZURE + b"2023-11-16 18:17:03,1,2\n2023-11-16 18:17:02,1,2\n", 3, "before the first"),
        (b'{"prompt_tokens": 5, "new_tokens": 7}\n{"prompt_tokens": 5, "ne', 2, "no JSON"),
        (b'{"prompt_tokens": 5, "new_tokens": 7}\n[5, 7]\n', 2, "must be an object, is [5, 7]"),
        (b'{"prompt_tokens": 5, "new_tokens": 7}\n{"prompt_tokens": 5}\n', 2, "new_tokens is mis"),
        (b'{"prompt_tokens": 5, "new_tokens": 7.5}\n', 1, "new_tokens is 7.5"),
        (b'{"prompt_tokens": 5, "new_tokens": true}\n', 1, "new_tokens is True"),
        (b'{"prompt_tokens": 5, "new_tokens": null}\n', 1, "new_tokens is None"),
        (b'{"prompt_tokens": 5, "new_tokens": NaN}\n', 1, "new_tokens is nan"),
        (b'{"prompt_tokens": 5, "new_tokens": 7, "arrival": 1%s}\n' % (b"0" * 400), 1, "arrival"),
        (b'{"prompt_tokens": ' + b"[" * 100_000, 1, "no JSON"),
        (b'{"timestamp": 0, "input_length": 5}\n', 1, "output_length missing"),
        (mooncake(b"[-1]"), 1, "hash_ids is [-1]"),
        (mooncake(b'"1"'), 1, "hash_ids is '1'"),
        (mooncake(b"0"), 1, "hash_ids is 0, expected a list"),
        (mooncake(b"false"), 1, "hash_ids is False"),
        (mooncake(b'""'), 1, "hash_ids is ''"),
        (mooncake(b"{}"), 1, "hash_ids is {}"),
        (mooncake(b"[1], " + mooncake(b"[1]")[1:-2]), 1, "'timestamp' is named twice"),
        (b"prompt_tokens,new_tokens,prompt_tokens\n1,2,3\n", 1, "'prompt_tokens' is named twice"),
        (HEADER + b"5,7,1_0\n", 2, "arrival is '1_0'"),
        (HEADER + "5,7,１\n".encode(), 2, "arrival is '１'"),
        (AZURE + b"0001-01-01 00:00:00,1,2\n9999-12-31 00:00:00,1,2\n", 3, "s behind the first"),
        (b"[5, 7]\n", 1, "must be an object, is [5, 7]"),
        (b'[\n{"prompt_tokens": 5, "new_tokens": 7}\n]\n', 1, "no JSON"),
        (b"\x1f\x8b\x08\x00\x00", 1, "not text: bad UTF-8"),
    ],
)
def test_a_bad_file_is_one_line_that_names_the_place(
    tmp_path: Path, content: bytes, line: int, words: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'requests.txt'}: line {line}: "), message
    assert words in message
    assert "\n" not in message
    assert len(message) < len(str(tmp_path)) + 250


def test_what_stands_before_a_bad_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_bytes(HEADER + b"5,7,0\n5,x,1\n")
    requests = read_workload(path)
    assert next(requests).num_new_tokens == 7
    with pytest.raises(WorkloadError, match="line 3"):
        next(requests)


def test_no_file_and_a_folder_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nosuch\.csv: can't be read: No such file"):
        list(read_workload(tmp_path / "nosuch.csv"))
    for name in (tmp_path, "a\0b"):
        with pytest.raises(WorkloadError, match="can't be read"):
            list(read_workload(name))


@pytest.mark.parametrize("num_lines", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_long_file_takes_no_more_memory_than_a_short_one(tmp_path: Path, num_lines: int) -> None:
    path = tmp_path / "long.csv"
    with path.open("wb") as file:
        file.write(HEADER)
        for start in range(0, num_lines, 1000):
            file.write(b"".join(b"161,338,%d\n" % (start + i) for i in range(1000)))
    code = (
        "import resource, sys; from itertools import islice\n"
        "from minipaged.lab.length_files import read_workload\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "requests = read_workload(sys.argv[1]); next(islice(requests, 1000, None))\n"
        "before = peak(); rest = sum(1 for _ in requests); print(rest, peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    rest, growth = map(int, done.stdout.split())
    assert rest == num_lines - 1001
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, KiB elsewhere
    assert growth * unit < 2**20, done.stderr
