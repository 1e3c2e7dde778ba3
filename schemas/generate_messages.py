"""Write the descriptors of proto/grpc.proto, from which services/grpc makes its messages.

    python -m loomlog.schemas.generate_messages [--check]

Not chosen: generated classes. They register in the pool of the process, where the client of loomcycle has messages of
the same names, and each needs a runtime as new as the compiler.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
SOURCE = HERE / "proto" / "grpc.proto"
DESCRIPTORS = HERE / "generated" / "grpc.binpb"
WELL_KNOWN = Path(protoc.__file__).parent / "_proto"
"""Folder of the messages that come with the compiler, such as Timestamp."""


def compile_messages() -> bytes:
    """Return the serialized FileDescriptorSet. Raises SystemExit when the file has an error, which protoc prints."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / DESCRIPTORS.name
        paths = [f"--proto_path={SOURCE.parent}", f"--proto_path={WELL_KNOWN}"]
        if status := protoc.main(
            ["protoc", *paths, "--include_imports", f"--descriptor_set_out={written}", SOURCE.name]
        ):
            raise SystemExit(status)
        return written.read_bytes()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the descriptors are stale")
    options = parser.parse_args(arguments)
    compiled = compile_messages()
    if DESCRIPTORS.exists() and DESCRIPTORS.read_bytes() == compiled:
        return 0
    if options.check:
        print("stale: schemas/generated/grpc.binpb; run `make schemas`", file=sys.stderr)  # noqa: T201 - to a terminal
        return 1
    DESCRIPTORS.write_bytes(compiled)
    return 0


if __name__ == "__main__":
    sys.exit(main())
