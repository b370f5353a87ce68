#!/bin/sh
# Brings the libraries that libattn is compared with into a folder, as they are published; nothing is
# installed outside it and no install script runs. What cannot be had is named, and left out.
#
# Usage: install.sh FOLDER
#
# SPDX-License-Identifier: MIT
set -eu

folder=$1
mkdir -p "$folder"
cd "$folder"

# ONNX Runtime and ggml, from the npm registry.
if [ -e node_modules/onnxruntime-node ] && [ -e node_modules/@node-llama-cpp/linux-x64 ]; then
    :
elif [ "$(uname -sm)" != 'Linux x86_64' ]; then
    echo "peers: ONNX Runtime and ggml: left out, their binaries here are for x86-64 Linux"
elif ! command -v npm >/dev/null; then
    echo "peers: ONNX Runtime and ggml: left out, npm is missing (apt-get install npm)"
elif ! npm install --prefix . --no-audit --no-fund --ignore-scripts --save-exact \
    onnxruntime-node@1.30.0 @node-llama-cpp/linux-x64@3.21.1 >npm.log 2>&1; then
    echo "peers: ONNX Runtime and ggml: left out, npm could not install them:"
    sed 's/^/    /' npm.log
fi

# OpenBLAS, from Debian: the installed one, or its packages unpacked here.
if ldconfig -p 2>/dev/null | grep -q 'libopenblas\.so\.0' || [ -e usr ]; then
    :
elif ! command -v apt-get >/dev/null; then
    echo "peers: OpenBLAS: left out, neither installed nor to be had by apt-get"
elif apt-get download libopenblas0-pthread libgfortran5 libquadmath0 >apt.log 2>&1; then
    for package in *.deb; do
        dpkg -x "$package" .
    done
    rm -f ./*.deb
else
    echo "peers: OpenBLAS: left out, apt-get could not download it:"
    sed 's/^/    /' apt.log
fi
