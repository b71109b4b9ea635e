"""What users should know although the work goes on: one sentence on stderr."""

import sys

from mrcfa.console.addresses import without_secrets
from mrcfa.console.printable import printable


def tell(sentence: object) -> None:
    if sys.stderr is not None:  # else it would go to standard output
        print(f"mrcfa: {printable(without_secrets(str(sentence)))}", file=sys.stderr, flush=True)
