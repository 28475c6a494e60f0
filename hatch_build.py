"""Compiles the kernels into the wheel where there is a C compiler; without one the wheel is pure Python.

`TORCHDALI_NATIVE=0` leaves them out.  An editable install compiles them where they are first used.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    """Adds the library to a wheel, which then serves one platform, and any version of Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("TORCHDALI_NATIVE") == "0":
            return
        # By its path: the package itself needs torch.
        spec = importlib.util.spec_from_file_location("build", Path(self.root, "torchdali", "native", "build.py"))
        assert spec is not None and spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name, build.BUILT)
        if build.compile_library(library):
            build_data["force_include"][str(library)] = f"torchdali/native/{build.BUILT}"
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()
