# mrcfa on NVIDIA's TensorRT image: TensorRT 10.13, CUDA 13, Python 3.12, x86-64, driver r580 or later.
# Not built by us. In the clone:
#
#   docker build -f docker/tensorrt.Dockerfile -t mrcfa .
#   docker run --rm --gpus all -v "$PWD/bundles:/bundles" mrcfa build /bundles/demo
#   docker run --rm --gpus all -v "$PWD/bundles:/bundles" mrcfa selftest /bundles/demo
FROM nvcr.io/nvidia/tensorrt:25.08-py3

# The versions are those of the image's Ubuntu.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*

# The image's own TensorRT is seen through --system-site-packages.
COPY . /opt/clone
RUN python3 -m venv --system-site-packages /opt/mrcfa \
    && /opt/mrcfa/bin/pip install --no-cache-dir "/opt/clone[cpu,video]" \
        "onnx>=1.21" "onnx-ir>=0.1.13" "cuda-python>=12.9.1"

ENV PATH=/opt/mrcfa/bin:$PATH
WORKDIR /bundles
ENTRYPOINT ["mrcfa"]
