"""A client of its own: `client.py ADDRESS SEED…` has a stream for each seed.

Every `FIRST LAST` on stdin segments those frames of all its videos in turn; a line with seed, frame
and the mask's hash answers each.
"""

import sys
from zlib import crc32

from fill import clip

from mrcfa import Stream

FRAMES = 40


def main() -> None:
    address, *seeds = sys.argv[1:]
    streams = {int(seed): Stream(address) for seed in seeds}
    videos = {seed: clip(FRAMES, 96, 160, seed) for seed in streams}
    for line in sys.stdin:
        first, last = map(int, line.split())
        for number in range(first, last):
            for seed, stream in streams.items():
                print(seed, number, crc32(stream(videos[seed][number])), flush=True)
    for stream in streams.values():
        stream.close()


if __name__ == "__main__":
    main()
