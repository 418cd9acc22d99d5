"""Find out whether a folder is on a network file system. Never imports DALI."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

#: Values of `f_type` in Linux's ``struct statfs``, from ``linux/magic.h`` and the file systems'
#: sources.
_NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "CIFS",
    0x65735546: "FUSE",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x00C36400: "Ceph",
    0x19830326: "BeeGFS",
    0x01021997: "9P",
    0x5346414F: "AFS",
}


def network_filesystem(path: str) -> str | None:
    """Return the name of the network file system that contains a path.

    `None` if it is local, or not known.

    FUSE counts as a network file system, because most of them are: s3fs, gcsfuse, sshfs, rclone.
    """
    # The structure differs between architectures, but all 64-bit ones start with `f_type` as a
    # long.
    buffer = ctypes.create_string_buffer(512)
    if _libc.statfs(os.fsencode(path), buffer):
        return None
    return _NETWORK.get(ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF)
