"""Runs parts of a benchmark in separate processes, and describes exit codes and file systems."""

import multiprocessing
import pathlib
import signal


def exit_text(code):
    return f"the process ended by {signal.Signals(-code).name}" if code and code < 0 else f"the process ended with {code}"


def run_in_process(on_message, target, *arguments):
    """Runs `target` in a new process and returns the exit code of the process.

    `target` gets the sending end of a pipe, then `arguments`. `on_message` is called with each message that it sends.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        while True:
            on_message(ours.recv())
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
