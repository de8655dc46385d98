"""The last step of the peers' environment: `python finish_environment.py`, run there by its own Python.

Installs `torchvision_names` (see there) and checks that what the peers import can be imported. Ends with a line that
says what to do if there is no CPU build of torch.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "torchvision_names"


def main() -> None:
    torch = importlib.import_module("torch")
    if torch.version.cuda is not None:
        sys.exit(f"torch {torch.__version__} is a CUDA build: set PIP_EXTRA_INDEX_URL to PyTorch's CPU wheel index")
    packages = Path(sysconfig.get_paths()["purelib"])
    shutil.copyfile(HERE / f"{NAME}.py", packages / f"auras_{NAME}.py")
    (packages / f"auras_{NAME}.pth").write_text(f"import auras_{NAME}\n", encoding="utf-8")
    importlib.invalidate_caches()
    importlib.import_module(f"auras_{NAME}")  # lines of .pth files are run when an interpreter starts
    for module in ("torchvision", "transformers", "vllm"):
        print(module, importlib.import_module(module).__version__)


if __name__ == "__main__":
    main()
