"""A tokenizer in a separate process, which can be stopped and whose memory is limited.

Started as a script by `tokenizer_process`. Both pipes carry frames: four bytes of length, then the bytes. The first frame is a
`tokenizer.json`; each later one is a JSON request, answered by one JSON frame.

It ends with its parent, also in the middle of a text that would take for ever: a thread watches for the end of the pipe, and
where that cannot run the system ends the process once it has taken more processor time than a request may. `confined` does both,
also for `chat_child`.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any

from circuitlab.disk.json_types import JsonDict

MEMORY = 3 * 2**30  # bytes of address space, on systems that can limit it
LOADING = 30.0  # s of processor time for a `tokenizer.json`
SPARE = 2.0  # s beyond what a request may take, in which the parent stops it itself


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """The contents of the next frame, None at the end."""
    head = pipe.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack(">I", head)[0]
    data = pipe.read(size)
    return data if len(data) == size else None


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    """Write one frame."""
    pipe.write(struct.pack(">I", len(data)))
    pipe.write(data)
    pipe.flush()


def _answer(tokenizer: Any, request: JsonDict) -> JsonDict:
    if "ids" in request:
        return {"text": tokenizer.decode(request["ids"], skip_special_tokens=not request["special"])[: request["most"]]}
    tokenizer.encode_special_tokens = not request["special"]  # the library's word for reading them as letters
    ids = tokenizer.encode_batch_fast([request["text"]], add_special_tokens=request["added"])[0].ids
    return {"many": len(ids)} if len(ids) > request["most"] else {"ids": ids}


def _end_with(pipe: int) -> None:
    """End this process when nobody can write to a pipe any more. POSIX only: elsewhere it ends at the next reading."""
    with suppress(ImportError):
        from select import poll

        ends = poll()
        ends.register(pipe, 0)  # that it hangs up is told in any case
        ends.poll()
        os._exit(0)


def confined(requests: IO[bytes], memory: int, seconds: float) -> None:
    """From now on this process ends with whoever writes `requests`, writes no files and takes at most `memory` bytes of addresses
    and `seconds` of processor time: as far as the system can limit it.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    threading.Thread(target=_end_with, args=(requests.fileno(),), daemon=True).start()
    limit(seconds)


def limit(seconds: float) -> None:
    """The processor time that this process may take from now on, where the system can limit it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        most = math.ceil(time.process_time() + seconds + SPARE)
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main() -> None:
    """Serve requests until the pipe is closed."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    confined(requests, MEMORY, LOADING)
    from tokenizers import Tokenizer

    tokenizer = None
    while (data := read_frame(requests)) is not None:
        try:
            if tokenizer is None:
                tokenizer = Tokenizer.from_str(data.decode("utf-8"))
                tokenizer.no_truncation()
                tokenizer.no_padding()
                reply: JsonDict = {}
            else:
                request = json.loads(data)
                limit(request["seconds"])
                reply = _answer(tokenizer, request)
        except BaseException as error:  # the library's panics are BaseException
            reply = {"error": str(error).partition("\n")[0][:200] or type(error).__name__}
        write_frame(answers, json.dumps(reply).encode())


if __name__ == "__main__":
    main()
