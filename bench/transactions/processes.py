"""Functions that run a part in a process of its own."""

import multiprocessing
import pathlib
import signal


def ended(code):
    return f"the process ended by {signal.Signals(-code).name}" if code and code < 0 else f"the process ended with {code}"


def apart(hear, target, *arguments):
    """Runs `target` in a process of its own, calls `hear` with each of its messages, and returns its exit code."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        while True:
            hear(ours.recv())
    except EOFError:
        process.join()
    finally:
        if process.is_alive():
            process.kill()
    return process.exitcode


def file_system(directory):
    """Returns type and device of the file system of a directory."""
    resolved, found = pathlib.Path(directory).resolve(), ("", "", "")
    for line in pathlib.Path("/proc/mounts").read_text().split("\n"):
        device, mount, kind = (line.split() + ["", "", ""])[:3]
        if mount and resolved.is_relative_to(mount) and len(mount) >= len(found[1]):
            found = (device, mount, kind)
    return found[2], found[0]
