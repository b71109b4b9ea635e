# mrcfa on NVIDIA's image of JetPack 6: TensorRT 10.3, CUDA 12.6, Python 3.10, for Jetson Orin.
# Not built by us. On the Jetson, in the clone:
#
#   docker build -f docker/jetpack.Dockerfile -t mrcfa .
#   docker run --rm --runtime nvidia -v "$PWD/bundles:/bundles" mrcfa build /bundles/demo
#   docker run --rm --runtime nvidia -v "$PWD/bundles:/bundles" mrcfa selftest /bundles/demo
FROM nvcr.io/nvidia/l4t-jetpack:r36.4.0

# The versions are those of JetPack and its Ubuntu.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*

# JetPack's own TensorRT is seen through --system-site-packages; its driver knows CUDA 12 alone.
COPY . /opt/clone
RUN python3 -m venv --system-site-packages /opt/mrcfa \
    && /opt/mrcfa/bin/pip install --no-cache-dir "/opt/clone[cpu,video]" \
        "onnx>=1.21" "onnx-ir>=0.1.13" "cuda-python>=12.9.1,<13"

ENV PATH=/opt/mrcfa/bin:$PATH
WORKDIR /bundles
ENTRYPOINT ["mrcfa"]
