"""Makes what is not committed: Python of the .proto files, for wheels and editable installs alike, and the web page."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._compile_protos()
        # An editable install must not need npm: `make web` builds the page there.
        if version != "editable":
            self._build_page()

    def _compile_protos(self) -> None:
        import grpc_tools
        from grpc_tools import protoc

        src = Path(self.root) / "src"
        protos = sorted(str(path) for path in src.rglob("*.proto"))
        include = Path(grpc_tools.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{src}", f"-I{include}", f"--python_out={src}", f"--pyi_out={src}", *protos]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc failed for {', '.join(protos)}; its messages are above")

    def _build_page(self) -> None:
        built = Path(self.root) / "src" / "tidewheel" / "serve" / "page" / "index.html"
        if built.exists():
            return
        script = Path(self.root) / "web" / "build.py"
        if subprocess.run([sys.executable, str(script)], check=False).returncode != 0 or not built.exists():
            raise RuntimeError("the web page could not be built, see above; run `make web`, then build again")
