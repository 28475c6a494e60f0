"""Compiles the kernels: at the package's build, and for a checkout where they are first used.

It uses nothing but the standard library, since the package's build runs it too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
COMPILED = tuple(FOLDER / name for name in ("images.c", "colors.c", "sample.c", "blur.c"))
SOURCES = (*COMPILED, *(FOLDER / name for name in ("resize_avx2.h", "resize_neon.h", "vectors.h")))
"""All of which the library is made."""
BUILT = "_kernels.so"
"""The library's name in a package that was built with it."""

# -ffp-contract=off: a product and a sum round one by one, as in torch.  -fno-trapping-math: vectors may compute both
# sides of a choice.
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=off", "-fno-trapping-math", "-Wall", "-Wextra")


def compiler() -> str | None:
    """Give the path of a C compiler that takes GCC's flags, `$CC` first; None: there is none."""
    names = [os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def compile_library(target: Path, *flags: str) -> bool:
    """Compile the kernels to a shared library; False: no compiler, or it failed.

    Processes may do it at the same time: the file appears as a whole.

    Args:
        target: the library; its folder exists.
        flags: further flags.
    """
    command = compiler()
    if command is None or sysconfig.get_platform().startswith("win"):
        return False
    handle, made = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        line = [command, *FLAGS, *flags, "-o", made, *map(str, COMPILED), "-lm"]
        done = subprocess.run(line, capture_output=True, timeout=120, check=False)
        if done.returncode:
            return False
        os.chmod(made, 0o755)
        os.replace(made, target)
        return True
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        Path(made).unlink(missing_ok=True)
