#!/usr/bin/env bash
# Trains your own model on videos with masks, and segments new videos with it: examples/newcomer.sh [FOLDER]
#
# Drawn streets take the place of your videos; your own data has the same folders (docs/training.md). Frames are
# small and steps are few, so that a CPU needs only minutes; so the masks are not accurate.
set -euo pipefail
folder=${1:-newcomer}
mkdir "$folder"
cd "$folder"

# Two videos to train on, one to validate: data/VIDEO/origin and data/VIDEO/mask, labels.json, train.txt, val.txt.
mrcfa sample mydata --train 2 --videos 1 --size 96x160
cp "$(ls mydata/data/val_0/origin/* | head -n 1)" photo.jpg

# Ctrl-C stops the training and saves it. In a script, `kill -INT` does that; `set -m` lets the job receive it.
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

# A bundle that returns the scores of all classes instead of the best class.
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
