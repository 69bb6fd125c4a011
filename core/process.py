"""The engine's own process: `python -m sensorium.core.process FD` serves the gateway on socket FD.

`serve` is the same in a thread. It ends when the gateway says so, is gone, or the engine is lost.
"""

import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from sensorium.core import ipc
from sensorium.core.api import EngineRequest
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import CoreError
from sensorium.core.loop import EngineLoop, LoadedModels

logger = logging.getLogger(__name__)

Load = Callable[[ModelsConfig, EngineConfig], LoadedModels]

_PR_SET_PDEATHSIG = 1
_PASSIVE_WAITS = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}


def serve(sock: socket.socket, load: Load) -> bool:
    """Load what the gateway's `Start` asks for, then serve it; False if the engine is lost.

    Models that can't be loaded are told to the gateway as `StartFailed`.
    """
    channel = ipc.Channel(sock)
    try:
        start = channel.receive()
        if not start or not isinstance(start[0], ipc.Start):
            return False
        models = _load(channel, load, start[0])
        return models is not None and _run(channel, models)
    except ConnectionError:
        return True  # the gateway is gone, and nobody is left to be told
    except Exception:  # it ends the process; the gateway restarts it
        logger.exception("the engine is lost")
        return False
    finally:
        channel.close()


def load_models(models: ModelsConfig, engine: EngineConfig) -> LoadedModels:
    """Load the real models; what imports torch is imported here, once it is wanted."""
    try:
        from sensorium.core import startup
    except ImportError as error:
        raise CoreError(f"{error}; run: pip install 'sensorium[engine]'") from error
    return startup.load_models(models, engine)


def _load(channel: ipc.Channel, load: Load, start: ipc.Start) -> LoadedModels | None:
    try:
        return load(start.models, start.engine)
    except CoreError as error:
        channel.send([ipc.StartFailed(kind=type(error).__name__, message=str(error))])
    except Exception as error:  # whatever the libraries raise, the gateway is told
        logger.exception("the models can't be loaded")
        message = f"the engine failed to start: {type(error).__name__}: {error}"
        channel.send([ipc.StartFailed(kind="CoreError", message=message)])
    return None


def _run(channel: ipc.Channel, models: LoadedModels) -> bool:
    """Serve requests until the end. The reading thread ends with the channel."""
    loop = EngineLoop(models, publish=channel.send)
    reader = threading.Thread(target=_read, args=(channel, loop), name="requests", daemon=True)
    channel.send([ipc.Ready(info=models.info)])
    reader.start()
    loop.run()
    return True


def _read(channel: ipc.Channel, loop: EngineLoop) -> None:
    try:
        while (messages := channel.receive()) is not None:
            for message in messages:
                if isinstance(message, EngineRequest):
                    loop.receive(message)
                elif isinstance(message, ipc.Stop):
                    return
    except ipc.WireError as error:
        logger.error("the gateway sent no request: %s", error)
    finally:
        loop.stop()


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the gateway dies, even while it is loading weights."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _exit_on_thread_failure(args: threading.ExceptHookArgs) -> None:
    """End the process if one of its threads dies: half an engine would hang its sessions."""
    error = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
    logger.critical("thread %s died", args.thread and args.thread.name, exc_info=error)
    os._exit(1)


def main(load: Load = load_models) -> None:
    """Entry point of the child: `sys.argv[1]` is the file descriptor of its end of the socket."""
    _die_with_parent()
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        # Ctrl-C and service managers reach both processes; the gateway decides when to end.
        signal.signal(stop_signal, signal.SIG_IGN)
    os.environ.update(_PASSIVE_WAITS)  # read by OpenMP when `load` imports torch
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    threading.excepthook = _exit_on_thread_failure
    with contextlib.closing(socket.socket(fileno=int(sys.argv[1]))) as sock:
        served = serve(sock, load)
    logging.shutdown()
    os._exit(0 if served else 1)  # libraries' threads must not hold the end up


if __name__ == "__main__":
    main()
