"""The launcher of a child, which prepares the process and becomes the program: `python -I -S launch.py [options] --
program args`.

Three things have to happen inside the new process, between fork and exec: ask the kernel for a signal when the parent
dies (so that `kill -9` of the supervisor leaves no orphans), drop root, or map root to another number. A `preexec_fn`
would do them in a copy of a process with threads, where a lock held by another thread is held forever; a small program
is safe and costs 20 ms.

    --parent PID:SIGNAL   get SIGNAL when PID dies; end at once if it has died (Linux; elsewhere shutdown.py cleans up).
                          The kernel means the thread that started us, so a supervisor must run in a permanent one.
    --account UID:GID     become this account (needs root)
    --namespace UID:GID   stay the same outside, look like this account inside (user namespace)

Imports nothing of the project: -I -S exclude it.

Before: children, oneshot.  After: the program.
"""

import ctypes  # loaded now: the account a launch changes to may not be able to read Python's library
import os
import sys

LAUNCHER = os.path.abspath(__file__)
PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
CANNOT_LAUNCH = 127


def launch(arguments: "list[str]") -> None:
    """Apply the options and become the program. Does not return."""
    options, program = _split_arguments(arguments)
    try:
        if "--account" in options:
            uid, gid = _parse_pair(options["--account"])
            os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
        if "--namespace" in options:
            _enter_user_namespace(*_parse_pair(options["--namespace"]))
        if "--parent" in options:  # last: changing the account clears it
            parent, number = _parse_pair(options["--parent"])
            _set_parent_death_signal(parent, number)
        os.execvp(program[0], program)  # noqa: S606 - becoming another program without a shell is the purpose
    except OSError as error:
        sys.stderr.write(f"cannot start {program[0]}: {error}\n")
        sys.exit(CANNOT_LAUNCH)


def _split_arguments(arguments: "list[str]") -> "tuple[dict[str, str], list[str]]":
    end = arguments.index("--")
    return dict(zip(arguments[0:end:2], arguments[1:end:2], strict=True)), arguments[end + 1 :]


def _parse_pair(text: str) -> "tuple[int, int]":
    first, second = text.split(":")
    return int(first), int(second)


def _set_parent_death_signal(parent: int, signal_number: int) -> None:
    if sys.platform != "linux":
        return
    _call_libc("prctl", PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        sys.exit(f"the supervisor {parent} is gone")


def _enter_user_namespace(uid: int, gid: int) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _call_libc("unshare", CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),  # the kernel requires this before it accepts a group map
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _call_libc(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    launch(sys.argv[1:])
