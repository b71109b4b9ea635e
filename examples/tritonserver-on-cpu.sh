#!/usr/bin/env bash
# Runs a real tritonserver on a CPU, without a container, for repositories of `mrcfa triton --platform python`:
#
#   examples/tritonserver-on-cpu.sh --model-repository=models [any option of tritonserver]
#
# The server and its Python backend come from the wheel nvidia-pytriton (Linux on x86-64, 55 MB). The wheel is
# unpacked into build/triton and not installed, because its requirements would keep NumPy below 2. Models run
# in the first `python3` in PATH, which therefore needs mrcfa. Without options the server is only downloaded.
set -euo pipefail
wheel=$(cd "$(dirname "$0")/.." && pwd)/build/triton
triton=$wheel/pytriton/tritonserver
if [ ! -d "$triton" ]; then
  # Unpacked elsewhere and then moved: an incomplete server would be mistaken for a complete one.
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/tritonserver.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  python3 -m pip install --quiet --no-deps --target "$scratch/wheel" nvidia-pytriton==0.7.0
  mkdir -p "$(dirname "$wheel")"
  mv -T "$scratch/wheel" "$wheel"
fi
[ $# -gt 0 ] || exit 0

# The Python backend starts the stub in its own folder, which must match this Python's version.
version=$(python3 -c 'import sys; print("{}.{}".format(*sys.version_info[:2]))')
backends=$wheel/backends-$version
if [ ! -d "$backends" ]; then
  stub=$triton/python_backend_stubs/$version/triton_python_backend_stub
  if [ ! -f "$stub" ]; then
    echo "tritonserver-on-cpu: the wheel has no stub for Python $version; it has those for" \
      "$(ls "$triton/python_backend_stubs" | paste -sd' ')" >&2
    exit 2
  fi
  scratch=$(mktemp -d "$wheel/.backends.XXXXXX")
  cp -R "$triton/backends/python" "$scratch"
  cp "$stub" "$scratch/python"
  mv -T "$scratch" "$backends" 2> /dev/null || rm -rf "$scratch"  # another process was first
fi

# The stub links libpython, which many Python installations keep in a folder of their own.
libraries=$(python3 -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
export LD_LIBRARY_PATH=$libraries:$wheel/nvidia_pytriton.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$triton/bin/tritonserver" --backend-directory="$backends" "$@"
