"""Compiles the .proto files beside the code that uses them, for wheels and for editable installs alike."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtobufBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        import grpc_tools
        from grpc_tools import protoc

        src = Path(self.root) / "src"
        protos = sorted(str(path) for path in src.rglob("*.proto"))
        include = Path(grpc_tools.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{src}", f"-I{include}", f"--python_out={src}", f"--pyi_out={src}", *protos]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc failed for {', '.join(protos)}; its messages are above")
