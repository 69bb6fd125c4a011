"""One core a thread: how torch counts the threads of a thread."""

import sys
import threading

_lock = threading.Lock()


def use_one_core() -> None:
    """Let torch compute on the calling thread alone from now on, and change nothing elsewhere.

    Encoder calls run side by side and beside the engine, whose step is shared among all cores: if a
    call gathered a team of its own as well, they would all wait for each other at every operation.
    Encoders that compute without torch (ctranslate2, onnxruntime) have settings of their own.

    What torch 2.14 does (seen in its source, and by counting the process's threads): the number
    that `set_num_threads` sets holds for the calling thread, in OpenMP and in MKL alike, and is
    the default that any other thread takes over with its *first* use of torch, once. So a thread
    that sets its number before it has taken over the default loses it again, hence the question
    first; and the default has to be put back, by a thread that nobody needs any more.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return  # every encoder is loaded by now, and none computes with it
    with _lock:
        usual = torch.get_num_threads()
        torch.set_num_threads(1)
        restoring = threading.Thread(target=torch.set_num_threads, args=(usual,))
        restoring.start()
        restoring.join()
