#!/usr/bin/env bash
# Makes the Go code from gateway.thrift with the pinned compiler (Debian's package thrift-compiler). Its code
# builds with the Go library at the version of go.mod, which is newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
want=0.17.0
have=$(thrift --version 2>/dev/null || true)
[[ $have == "Thrift version $want" ]] || { echo "generate.sh: needs the Thrift compiler $want, found: ${have:-none}" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
thrift --gen go:skip_remote -out "$work" gateway.thrift
rm -f ./*-consts.go GoUnusedProtection__.go gateway.go
mv "$work"/thrift2/*.go .
gofmt -s -w ./*.go
