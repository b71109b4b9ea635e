"""What users should know although the work goes on: one sentence on stderr."""

import sys


def tell(sentence: object) -> None:
    print(f"mrcfa: {sentence}", file=sys.stderr, flush=True)
