#!/bin/sh
# Installs the executable, or the engine for GPUs, that is beside this script. Needs no network, no compiler and, without
# --service, no root.
#
#   ./install.sh [--prefix folder] [--service]
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=false
[ "$(id -u)" = 0 ] && root=true
prefix=/usr/local
$root || prefix=${HOME:?HOME is not set: give --prefix}/.local
service=false

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder."; prefix=$2 && shift ;;
    --service) service=true ;;
    *) fail "unknown option $1. Usage: install.sh [--prefix folder] [--service]" ;;
  esac
  shift
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
if $service; then
  $root || fail "--service needs root."
  [ -d /run/systemd/system ] || fail "--service needs systemd, which does not run here."
fi

(cd "$here" && sha256sum --check --status SHA256SUMS 2>/dev/null || sha256sum -c -s SHA256SUMS 2>/dev/null) ||
  fail "the files differ from SHA256SUMS: unpack the archive again."

# The rename replaces a file that is in use without disturbing it.
put() {
  mkdir -p "$(dirname -- "$2")"
  cp "$1" "$2.$$"
  chmod "$3" "$2.$$"
  mv -f "$2.$$" "$2"
}

if [ ! -e "$here/bunting" ]; then
  $service && fail "--service belongs to the archive of the executable; this one has the engine for GPUs."
  put "$here/libbunting_cuda.so" "$prefix/lib/bunting/libbunting_cuda.so" 644
  echo "Installed $prefix/lib/bunting/libbunting_cuda.so, which $prefix/bin/bunting uses. Try it: bunting doctor"
  exit 0
fi

"$here/bunting" --version >/dev/null 2>&1 || {
  "$here/bunting" --version 2>&1 | tail -n 3 >&2
  fail "the executable does not start here (see above). On Alpine: apk add libstdc++. Other platforms have packages of their own."
}

put "$here/bunting" "$prefix/bin/bunting" 755
echo "Installed $prefix/bin/bunting ($("$prefix/bin/bunting" --version))."

if $service; then
  sed "s|^ExecStart=/usr/local/bin/bunting|ExecStart=$prefix/bin/bunting|" "$here/bunting.service" >/etc/systemd/system/bunting.service
  mkdir -p /etc/bunting
  [ -e /etc/bunting/environment ] || {
    (umask 077 && echo "# Settings of the service, one NAME=value per line, such as BUNTING_PORT=8000" >/etc/bunting/environment)
  }
  systemctl daemon-reload
  systemctl enable --now bunting.service
  echo "The service runs: systemctl status bunting. Its settings: /etc/bunting/environment."
  exit 0
fi

case ":$PATH:" in
  *":$prefix/bin:"*) echo "Start it: bunting serve" ;;
  *) echo "Start it: $prefix/bin/bunting serve    (or add $prefix/bin to PATH)" ;;
esac
