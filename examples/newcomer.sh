#!/usr/bin/env bash
# A model of one's own, from videos with masks to the masks of new videos: examples/newcomer.sh [FOLDER]
#
# Drawn streets stand for your videos; data of your own has the same folders (docs/training.md). The frames
# are small and the steps few, so that a CPU is done in minutes. The masks show it.
set -euo pipefail
folder=${1:-newcomer}
mkdir "$folder"
cd "$folder"

# Two videos to learn from, one to judge by: data/VIDEO/origin and data/VIDEO/mask, labels.json, train.txt, val.txt.
mrcfa sample mydata --train 2 --videos 1 --size 96x160
cp "$(ls mydata/data/val_0/origin/* | head -n 1)" photo.jpg

# Ctrl-C in the middle saves what is learnt. In a script it is a signal, to a job with signals of its own.
set -m
mrcfa train mydata --backbone b0 --size 96x160 --crop 96x160 --batch 1 --iterations 100 --warmup 20 \
  --learning-rate 3e-4 --validate-every 50 --workers 1 -o runs/mine &
until grep -qs '"iteration": 20\b' runs/mine/log.jsonl || ! kill -0 %1; do sleep 0.2; done
kill -INT %1
wait %1 || [ $? = 130 ]
mrcfa train mydata --resume -o runs/mine

mrcfa export --weights runs/mine/best.safetensors -o bundles/mine
mrcfa run  bundles/mine photo.jpg -o mask.png
mrcfa run  bundles/mine mydata/street.mp4 -o street-masks.mp4
mrcfa run  bundles/mine mydata/data/val_0/origin -o masks
mrcfa eval bundles/mine mydata

# Scores of all classes, for who wants more than the best one.
mrcfa export --weights runs/mine/best.safetensors --output logits --precision fp32 -o bundles/mine-logits
python3 - <<'PYTHON'
import numpy as np
from PIL import Image

from mrcfa import Stream

with Stream("bundles/mine-logits") as stream:
    logits = stream.logits(Image.open("photo.jpg"))
print("logits", logits.shape, logits.dtype)
np.save("logits.npy", logits)
PYTHON
