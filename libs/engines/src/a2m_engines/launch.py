"""Become a command that dies with its parent: run as a script, never imported by the parent.

Arguments: the parent's pid, the number of the signal to die by, a uid and a gid to become (-1 keeps the
current ones), then the command. It is a process of its own rather than a `preexec_fn`, because the parent
may have threads, and code between fork and exec of a threaded process can deadlock.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, signal_number, uid, gid = (int(argument) for argument in sys.argv[1:5])
    command = sys.argv[5:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of user, which clears it. It survives exec and `unshare -U`.
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() != parent:
        sys.exit("the parent ended before its child began")
    os.execvp(command[0], command)  # noqa: S606 - a command of our own, without a shell


if __name__ == "__main__":
    main()
